"""layout.py HEADER [FURTHER]: a C program that prints the interface of bitnet.h as a compiler sees it:
the size and offsets of every public struct, but not of the field `reserved`, and the constants. The
program includes bitnet.h, and FURTHER if HEADER declares what is in there, too."""
import sys

import bitnet_ctypes

header = bitnet_ctypes.Header(sys.argv[1])
print('#include "bitnet.h"')
for further in sys.argv[2:]:
    print(f'#include "{further}"')
print('#include <stdio.h>\n'
      '#define SIZE(s) printf(#s " %d\\n", (int)sizeof(s))\n'
      '#define AT(s, f) printf(#s "." #f " %d\\n", (int)offsetof(s, f))\n'
      '#define IS(c) printf(#c " %d\\n", (int)c)\n'
      'int main(void) {')
for name, struct in header.structs.items():
    print(f'    SIZE({name});')
    for field, _ in struct._fields_:
        if field != 'reserved':
            print(f'    AT({name}, {field});')
for name in header.constants:
    print(f'    IS({name});')
print('    return 0;\n}')
