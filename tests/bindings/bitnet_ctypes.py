"""bitnet.h for Python, by ctypes, as little as a binding needs: packaging/python is the package for
people. Structs, enums, functions and the versioned names of their symbols are read from the header;
only Model, Context and Generation are written by hand.

    cc -O2 -shared -fPIC -DBITNET_IMPLEMENTATION -x c bitnet.h -o libbitnet.so -lpthread

    lib = Library('./libbitnet.so', 'bitnet.h')
    model = Model(lib, 'tiny.gguf')
    for part in Context(model).write(text=b'Once upon a time', max_tokens=40):
        print(part.decode(), end='')

All functions are there by their names, too, as the header declares them: lib.bitnet_eval(...).
"""
import ctypes as C
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../../packaging/python'))
import declarations


class Header:
    """What the interface declares: names {bitnet_eval: bitnet_eval_v1 ...}, constants, structs
    and functions {name: (result, [parameter ...])}, with types of ctypes."""

    def __init__(self, path):
        self.types = {}
        exec(declarations.module(path), self.types)
        functions = self.types['FUNCTIONS']
        self.names = {name: symbol for name, (symbol, _, _) in functions.items()}
        self.functions = {name: kinds for name, (_, *kinds) in functions.items()}
        self.constants = {name: value for name, value in self.types.items()
                          if name.startswith('BITNET_') and isinstance(value, int)}
        self.structs = {name: kind for name, kind in self.types.items()
                        if name.startswith('bitnet_') and hasattr(kind, '_fields_')}


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
