"""bitnet.h for Python, by ctypes. Structs, enums, functions and the versioned names of their symbols
are read from the header; only Model, Context and Generation are written by hand.

    cc -O2 -shared -fPIC -DBITNET_IMPLEMENTATION -x c bitnet.h -o libbitnet.so -lpthread

    lib = Library('./libbitnet.so', 'bitnet.h')
    model = Model(lib, 'tiny.gguf')
    for part in Context(model).write(text=b'Once upon a time', max_tokens=40):
        print(part.decode(), end='')

All functions are there by their names, too, as the header declares them: lib.bitnet_eval(...).
"""
import ctypes as C
import re

BASIC = {'char': C.c_char, 'int': C.c_int, 'float': C.c_float, 'size_t': C.c_size_t,
         'int8_t': C.c_int8, 'uint8_t': C.c_uint8, 'int32_t': C.c_int32, 'uint32_t': C.c_uint32,
         'int64_t': C.c_int64, 'uint64_t': C.c_uint64}
STATEMENT = re.compile(r'''
    typedef \s enum \s (?P<enum>\w+) \s \{ (?P<values>.*?) \} \s (?P=enum) ;
  | typedef \s struct \s (?P<struct>\w+) \s \{ (?P<fields>.*?) \} \s (?P=struct) ;
  | typedef \s struct \s (?P<opaque>\w+) \s (?P=opaque) ;
  | typedef \s (?P<result>[^;{}]*?) \( \* (?P<callback>\w+) \) \( (?P<arguments>.*?) \) ;
  | typedef \s (?P<meaning>\w+) \s (?P<alias>\w+) ;
  | BITNET_API \s (?P<returns>[^;(]*?) (?P<function>\w+) \( (?P<parameters>.*?) \) ;
''', re.VERBOSE)


class Header:
    """What the interface declares: names {bitnet_eval: bitnet_eval_v1 ...}, constants, structs
    and functions {name: (result, [parameter ...])}, with types of ctypes."""

    def __init__(self, path):
        with open(path, encoding='utf-8') as file:
            text = file.read()
        text = text[text.index('#ifndef BITNET_H\n'):text.index('#endif /* BITNET_H */')]
        text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
        self.names = dict(re.findall(r'^#define (bitnet_\w+) (bitnet_\w+)$', text, re.M))
        results = re.findall(r'X\((BITNET_\w+), (-?\d+), ".*?"\)', text)
        text = re.sub(r'^ *#(?:.*\\\n)*.*$', '', text, flags=re.M)
        text = text.replace('BITNET_RESULTS(BITNET_X)',
                            ''.join(f'{name} = {value},' for name, value in results))
        self.constants, self.structs, self.functions, self.types = {}, {}, {}, dict(BASIC)
        for statement in STATEMENT.finditer(' '.join(text.split())):
            self.declare(**statement.groupdict())

    def declare(self, enum, values, struct, fields, opaque, result, callback, arguments, meaning,
                alias, returns, function, parameters):
        if enum:
            self.types[enum] = C.c_int         # gcc takes unsigned if none is negative
            value = -1
            for item in filter(None, map(str.strip, values.split(','))):
                name, _, number = item.partition(' = ')
                value = self.constants[name] = int(number, 0) if number else value + 1
        elif struct:
            members = [member for line in fields.split(';') if line.strip()
                       for member in self.members(line.strip())]
            self.structs[struct] = self.types[struct] = type(struct, (C.Structure,),
                                                             {'_fields_': members})
        elif opaque:
            self.types[opaque] = type(opaque, (C.Structure,), {})
        elif callback:
            self.types[callback] = C.CFUNCTYPE(self.type(result), *self.parameters(arguments))
        elif alias:
            self.types[alias] = self.types[meaning]
        else:
            self.functions[function] = (self.type(returns), self.parameters(parameters))

    def members(self, line):
        """'const char *a, *b' or 'uint64_t dims[4]' as [(name, type) ...]."""
        base, names = re.fullmatch(r'((?:const )?\w+) (.*)', line).groups()
        for name in names.split(','):
            stars, name, count = re.fullmatch(r'\s*(\**)(\w+)(?:\[(\d+)\])?', name).groups()
            kind = self.type(base + stars)
            yield name, kind * int(count) if count else kind

    def parameters(self, text):
        """Of 'const char *text, size_t n'. Bytes of Python can be given for a text."""
        if text == 'void':
            return []
        kinds = [self.type(re.sub(r'\w+$', '', part)) for part in text.split(',')]
        return [C.c_char_p if kind is C.POINTER(C.c_char) else kind for kind in kinds]

    def type(self, text):
        """Of 'const char *'. A char * stays a pointer: what it points to may have no NUL."""
        words = text.replace('const', ' ').replace('*', ' * ').split()
        stars = words.count('*')
        if words[0] == 'void':
            if not stars:
                return None
            kind, stars = C.c_void_p, stars - 1
        else:
            kind = self.types[words[0]]
        for _ in range(stars):
            kind = C.POINTER(kind)
        return kind


class Failure(Exception):
    """A call's error, with its bitnet_result as .code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Library:
    """A shared library: lib.bitnet_NAME is a function or a struct, lib.BITNET_NAME a constant."""

    def __init__(self, path, header):
        self.header, self.dll, self.waiting = Header(header), C.CDLL(path), []
        for name, (result, parameters) in self.header.functions.items():
            function = getattr(self.dll, self.header.names[name])
            function.restype, function.argtypes = result, parameters
            setattr(self, name, function)
        self.__dict__.update(self.header.structs)
        self.__dict__.update(self.header.constants)

    def call(self, name, *arguments):
        """A function whose last parameter is a bitnet_error; its failure is raised."""
        err = self.bitnet_error()
        result = getattr(self, name)(*arguments, C.byref(err))
        if result < 0:
            raise Failure(result, err.text.decode())
        return result

    def make(self, struct, **fields):
        """A struct of parameters, with these fields: bytes for a text, a dict for a struct inside
        or pointed to, a list for a pointer with a count beside it, a function for a callback. It
        keeps alive what it points to."""
        made, kinds = getattr(self, struct)(), dict(getattr(self, struct)._fields_)
        for name, value in fields.items():
            setattr(made, name, self.value(kinds[name], value))
            if isinstance(value, list):
                setattr(made, 'n_' + name, len(value))
        return made

    def value(self, kind, value):
        pointed = getattr(kind, '_type_', None)
        if isinstance(value, bytes):
            pointer = C.cast(C.c_char_p(value), C.POINTER(C.c_char))
            return self.bitnet_text(pointer, len(value))
        if isinstance(value, dict) and issubclass(kind, C.Structure):
            return self.make(kind.__name__, **value)
        if isinstance(value, dict):
            return C.pointer(self.make(pointed.__name__, **value))
        if isinstance(value, list):
            return (pointed * len(value))(*(self.value(pointed, item) for item in value))
        if callable(value) and not isinstance(value, kind):
            return kind(value)
        return value

    def free(self, name, handle):
        """Frees in any order. A collector may do it in a callback, while the context is in use
        (BITNET_ERR_BUSY): then it is done at the next time."""
        self.waiting.append((name, handle))
        self.waiting = [(name, handle) for name, handle in self.waiting
                        if getattr(self, name)(handle) == self.BITNET_ERR_BUSY]


class Handle:
    """What the library has created, freed when Python has no reference to it any more."""

    def __init__(self, lib, kind, free):
        self.lib, self.handle, self.name = lib, C.POINTER(lib.header.types[kind])(), free

    def free(self):
        """What still uses it lives on."""
        handle, self.handle = self.handle, None
        if handle:
            self.lib.free(self.name, handle)

    __del__ = free


class Model(Handle):
    def __init__(self, lib, path, **params):
        super().__init__(lib, 'bitnet_model', 'bitnet_model_free')
        params = lib.make('bitnet_model_params', **params)
        lib.call('bitnet_model_load_file', path.encode(), C.byref(params), C.byref(self.handle))

    def info(self):
        info = self.lib.bitnet_model_info()
        self.lib.bitnet_model_get_info(self.handle, C.byref(info))
        return info

    def tokenize(self, text, flags=0):
        def fill(out, cap):
            return self.lib.bitnet_tokenize(self.handle, text, len(text), flags, out, cap)
        tokens = (C.c_int32 * max(fill(None, 0), 0))()
        return tokens[:fill(tokens, len(tokens))]

    def detokenize(self, tokens):
        array = (C.c_int32 * len(tokens))(*tokens)
        size = self.lib.bitnet_detokenize(self.handle, array, len(array), None, 0)
        text = C.create_string_buffer(max(size, 1))
        self.lib.bitnet_detokenize(self.handle, array, len(array), text, size)
        return text.raw[:size]


class Context(Handle):
    def __init__(self, model, **params):
        super().__init__(model.lib, 'bitnet_ctx', 'bitnet_ctx_free')
        self.params = self.lib.make('bitnet_ctx_params', **params)       # hooks are called later
        self.lib.call('bitnet_ctx_create', model.handle, C.byref(self.params),
                      C.byref(self.handle))

    def write(self, **params):
        """The pieces of a text; the parameters are those of bitnet_generate_params."""
        generation = Generation(self, **params)
        while not generation.piece().ended:
            generation.next()
            piece = generation.piece().text
            if piece.size:
                yield C.string_at(piece.data, piece.size)


class Generation(Handle):
    def __init__(self, context, **params):
        super().__init__(context.lib, 'bitnet_gen', 'bitnet_gen_end')
        self.context = context                 # in one that is freed, next fails
        self.params = self.lib.make('bitnet_generate_params', **params)
        self.lib.call('bitnet_gen_begin', context.handle, C.byref(self.params),
                      C.byref(self.handle))

    def next(self):
        self.lib.call('bitnet_gen_next', C.byref(self.handle), 1)

    def piece(self):
        piece = self.lib.bitnet_piece()
        self.lib.bitnet_gen_piece(self.handle, C.byref(piece))
        return piece
