"""The interface of bitnet.h, and of bitnet_grammar.h, as a Python module of ctypes.

    declarations.py HEADER... >_declarations.py

The module has each struct as a class, each enum's constants, the types of callbacks and the macros
that are texts, all by their own names, and
    FUNCTIONS = {'bitnet_eval': (the name of its symbol, type of the result, [types of parameters])}
"""
import ast
import re
import sys

BASIC = {name: 'C.c_' + name.replace('_t', '')
         for name in ('char', 'int', 'float', 'size_t', 'int8_t', 'uint8_t', 'int32_t', 'uint32_t',
                      'int64_t', 'uint64_t')}
BASIC['size_t'] = 'C.c_size_t'
STATEMENT = re.compile(r'''
    typedef \s enum \s (?P<enum>\w+) \s \{ (?P<values>.*?) \} \s (?P=enum) ;
  | typedef \s struct \s (?P<struct>\w+) \s \{ (?P<fields>.*?) \} \s (?P=struct) ;
  | typedef \s struct \s (?P<opaque>\w+) \s (?P=opaque) ;
  | typedef \s (?P<result>[^;{}]*?) \( \* (?P<callback>\w+) \) \( (?P<arguments>.*?) \) ;
  | typedef \s (?P<meaning>\w+) \s (?P<alias>\w+) ;
  | BITNET_(?:GRAMMAR_)?API \s (?P<returns>[^;(]*?) (?P<function>\w+) \( (?P<parameters>.*?) \) ;
''', re.VERBOSE)


class Writer:
    """Reads headers one after the other. self.lines is the module so far."""

    def __init__(self):
        self.types, self.functions = dict(BASIC), []
        self.lines = ['import ctypes as C', '']

    def header(self, text):
        text = re.search(r'^#ifndef (BITNET\w*_H)\n.*?^#endif /\* \1 \*/$', text, re.S | re.M).group()
        text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
        for name, value in re.findall(r'^#define (BITNET\w+)((?:\s|\\\n|"(?:\\.|[^"\\])*")+)\n', text,
                                      re.M):
            if '"' in value:
                literals = ' '.join(value.replace('\\\n', ' ').split('\n'))
                self.lines.append(f'{name} = {ast.literal_eval(literals.strip())!r}')
        symbols = dict(re.findall(r'^#define (bitnet_\w+) (bitnet_\w+)$', text, re.M))
        results = re.findall(r'X\((BITNET_\w+), (-?\d+), ".*?"\)', text)
        text = re.sub(r'^ *#(?:.*\\\n)*.*$', '', text, flags=re.M)
        text = text.replace('BITNET_RESULTS(BITNET_X)',
                            ''.join(f'{name} = {value},' for name, value in results))
        first = len(self.functions)
        for statement in STATEMENT.finditer(' '.join(text.split())):
            self.declare(symbols, **statement.groupdict())
        unknown = symbols.keys() - {name for name, *_ in self.functions[first:]}
        if unknown:
            raise ValueError(f'not declared, or not understood: {sorted(unknown)}')

    def declare(self, symbols, enum, values, struct, fields, opaque, result, callback, arguments,
                meaning, alias, returns, function, parameters):
        if enum:
            self.name(enum, 'C.c_int')         # gcc takes unsigned if none is negative
            value = -1
            for item in filter(None, map(str.strip, values.split(','))):
                name, _, number = item.partition(' = ')
                value = int(number, 0) if number else value + 1
                self.lines.append(f'{name} = {value}')
        elif struct:
            self.types[struct] = struct
            self.lines += ['', '', f'class {struct}(C.Structure):', '    _fields_ = [']
            for line in filter(None, map(str.strip, fields.split(';'))):
                self.lines += [f'        ({name!r}, {kind}),' for name, kind in self.members(line)]
            self.lines += ['    ]', '', '']
        elif opaque:
            self.types[opaque] = opaque
            self.lines += ['', '', f'class {opaque}(C.Structure):', '    pass', '', '']
        elif callback:
            kinds = [self.type(result)] + self.parameters(arguments)
            self.name(callback, f'C.CFUNCTYPE({", ".join(kinds)})')
        elif alias:
            self.name(alias, self.types[meaning])
        else:
            self.functions.append((function, symbols[function], self.type(returns),
                                   ', '.join(self.parameters(parameters))))

    def name(self, name, kind):
        self.types[name] = name
        self.lines.append(f'{name} = {kind}')

    def members(self, line):
        """'const char *a, *b' or 'uint64_t dims[4]' as (name, type) pairs."""
        base, names = re.fullmatch(r'((?:const )?\w+) (.*)', line).groups()
        for name in names.split(','):
            stars, name, count = re.fullmatch(r'\s*(\**)(\w+)(?:\[(\d+)\])?', name).groups()
            kind = self.type(base + stars)
            yield name, f'{kind} * {count}' if count else kind

    def parameters(self, text):
        """Of 'const char *text, size_t n'. Bytes of Python can be given for a text."""
        if text == 'void':
            return []
        kinds = [self.type(re.sub(r'\w+$', '', part)) for part in text.split(',')]
        return ['C.c_char_p' if kind == 'C.POINTER(C.c_char)' else kind for kind in kinds]

    def type(self, text):
        """Of 'const char *'. A char * stays a pointer: what it points to may have no NUL."""
        words = text.replace('const', ' ').replace('*', ' * ').split()
        stars = words.count('*')
        if words[0] == 'void':
            if not stars:
                return 'None'
            kind, stars = 'C.c_void_p', stars - 1
        else:
            kind = self.types[words[0]]
        for _ in range(stars):
            kind = f'C.POINTER({kind})'
        return kind

    def module(self):
        table = [f'    {name!r}: ({symbol!r}, {result}, [{parameters}]),'
                 for name, symbol, result, parameters in self.functions]
        lines = self.lines + ['', 'FUNCTIONS = {'] + table + ['}', '']
        return re.sub(r'\n{4,}', '\n\n\n', '\n'.join(lines))


def module(*headers):
    """The text of the module for these headers, by their paths."""
    writer = Writer()
    for path in headers:
        with open(path, encoding='utf-8') as file:
            writer.header(file.read())
    return writer.module()


if __name__ == '__main__':
    sys.stdout.write(module(*sys.argv[1:]))
