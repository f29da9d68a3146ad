"""Builds the package bitnet-h: a backend for pip (PEP 517), which needs nothing but Python.

A wheel has a shared library of bitnet.h and bitnet_grammar.h. It is compiled with CC and CFLAGS, or
is there already, for another system, too: then BITNET_H_LIBRARY is its path and BITNET_H_PLATFORM
the wheel's platform tag, or

    backend.py wheel FOLDER LIBRARY PLATFORM    as pip would, into a folder, and prints the name
    backend.py sdist FOLDER

The same files give the same bytes; times are SOURCE_DATE_EPOCH, or that of the year 1980.
"""
import base64
import csv
import gzip
import hashlib
import io
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile

import declarations

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = 'bitnet_h'
HEADERS = ['bitnet.h', 'bitnet_grammar.h']
SOURCES = ['packaging/bitnet.c', 'packaging/bitnet_grammar.c']
BESIDE = ['bitnet_kernels_arm.h', 'bitnet_kernels_wasm.h', 'bitnet_kernels_x86.h', 'packaging/exports.h',
          'LICENSE']
BUILD = ['pyproject.toml', 'README.md', 'backend.py', 'declarations.py']
METADATA = '''\
Metadata-Version: 2.4
Name: bitnet-h
Version: {version}
Summary: Ternary (1.58-bit) language models on any CPU: the C library bitnet.h
License-Expression: MIT
License-File: LICENSE
Keywords: bitnet,llm,inference,ternary,gguf,embeddings
Requires-Python: >=3.8
Provides-Extra: numpy
Requires-Dist: numpy; extra == 'numpy'
Classifier: Operating System :: MacOS
Classifier: Operating System :: Microsoft :: Windows
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

'''
WHEEL = '''\
Wheel-Version: 1.0
Generator: bitnet-h
Root-Is-Purelib: false
Tag: {tag}
'''


# ---- what is built of what ----

def source(name):
    """A file of bitnet.h: beside this one in a source distribution, else two folders up."""
    for folder in HERE, os.path.join(HERE, os.pardir, os.pardir):
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise FileNotFoundError(f'{name} is neither in {HERE} nor two folders up')


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def modules():
    """The files of the package that are not generated."""
    folder = os.path.join(HERE, PACKAGE)
    return {f'{PACKAGE}/{name}': read(os.path.join(folder, name)) for name in sorted(os.listdir(folder))
            if name.endswith('.py') or name == 'py.typed'}


def version():
    return re.search(rb'^#define BITNET_VERSION "(.*)"', read(source('bitnet.h')), re.M)[1].decode()


def metadata():
    return METADATA.format(version=version()).encode() + read(os.path.join(HERE, 'README.md'))


def epoch():
    return int(os.environ.get('SOURCE_DATE_EPOCH', 315532800))


# ---- the library ----

def compiled(folder):
    """Compiles the library for this machine. Returns its path."""
    cc = shlex.split(os.environ.get('CC', ''))
    if not cc:
        cc = next(([name] for name in ('cc', 'gcc', 'clang') if shutil.which(name)), None)
    if not cc:
        raise RuntimeError('there is no C compiler (CC, cc, gcc, clang) to build bitnet-h with')
    path = os.path.join(folder, library_name(sys.platform))
    command = cc + ['-O2', '-shared'] + shlex.split(os.environ.get('CFLAGS', ''))
    if sys.maxsize < 1 << 32 and re.match('i.86|x86|amd64', platform.machine(), re.I):
        command += ['-msse2', '-mfpmath=sse']  # else it computes with more bits than it should
    command += ['-DBITNET_SHARED', *map(source, SOURCES), '-o', path]
    if os.name == 'posix':
        command += ['-fPIC', '-fvisibility=hidden', '-lpthread']
    print('+', *command, flush=True)
    subprocess.run(command, check=True)
    return path


def library_name(system):
    """As _library.py looks for it. system: sys.platform, or a platform tag."""
    return ('bitnet.dll' if system.startswith('win') else
            'libbitnet.dylib' if system.startswith(('darwin', 'macosx')) else 'libbitnet.so')


def this_platform():
    tag = sysconfig.get_platform()
    if tag.startswith('macosx'):               # a Python for two machines; the library is for one
        machine = platform.machine()
        major, minor = (tag.split('-')[1] + '.0').split('.')[:2]
        if major == '10' and machine == 'arm64':             # as pip wants it: no such system is older,
            major = '11'
        if major != '10':                                    # and the minor number is 0 since 11
            minor = '0'
        tag = f'macosx-{major}.{minor}-{machine}'
    return re.sub(r'\W', '_', tag)


MACHINES = {'x86_64': 0x3e, 'aarch64': 0xb7,               # ELF: e_machine
            'amd64': 0x8664, 'arm64': 0xaa64}              # Windows: Machine


def check_library(data, tag):
    """A wheel for another machine, or that asks for more of a system than its tag says, would be
    found out by users."""
    known = re.match(r'(win|macosx|\w*linux)\w*_(x86_64|aarch64|amd64|arm64)$', tag)
    if not known:
        return
    name, machine = known.groups()
    needs = [tuple(map(int, found)) for found in re.findall(rb'GLIBC_(\d+)\.(\d+)', data)]
    has = re.match(r'manylinux_(\d+)_(\d+)_', tag)
    if name == 'win':
        header = int.from_bytes(data[60:64], 'little')
        fits = (data[:2] == b'MZ' and data[header:header + 4] == b'PE\0\0' and
                int.from_bytes(data[header + 4:header + 6], 'little') == MACHINES.get(machine))
    elif name == 'macosx':
        kind = {'x86_64': 0x01000007, 'arm64': 0x0100000c}.get(machine)
        fits = data[:4] == b'\xcf\xfa\xed\xfe' and int.from_bytes(data[4:8], 'little') == kind
    else:
        fits = (data[:4] == b'\x7fELF' and
                int.from_bytes(data[18:20], 'little') == MACHINES.get(machine))
    if not fits:
        raise ValueError(f'the library is not for {tag}')
    if needs and (tag.startswith('musllinux') or has and max(needs) > tuple(map(int, has.groups()))):
        raise ValueError(f'the library needs glibc {max(needs)[0]}.{max(needs)[1]}: not {tag}')


# ---- what pip calls ----

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = os.environ.get('BITNET_H_LIBRARY')
    if library:
        return wheel(wheel_directory, library, os.environ.get('BITNET_H_PLATFORM') or this_platform())
    with tempfile.TemporaryDirectory() as folder:
        return wheel(wheel_directory, compiled(folder), this_platform())


def wheel(folder, library, tag):
    library = read(library)
    check_library(library, tag)
    info = f'{PACKAGE}-{version()}.dist-info'
    files = modules()
    files[f'{PACKAGE}/_declarations.py'] = declarations.module(*map(source, HEADERS)).encode()
    files[f'{PACKAGE}/{library_name(tag)}'] = library
    files[f'{info}/METADATA'] = metadata()
    files[f'{info}/WHEEL'] = WHEEL.format(tag=f'py3-none-{tag}').encode()
    files[f'{info}/licenses/LICENSE'] = read(source('LICENSE'))
    files[f'{info}/RECORD'] = record(files, f'{info}/RECORD')
    name = f'{PACKAGE}-{version()}-py3-none-{tag}.whl'
    date = time.gmtime(max(epoch(), 315532800))[:6]
    with zipfile.ZipFile(os.path.join(folder, name), 'w', zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, date)
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3            # Unix, wherever this runs
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return name


def record(files, name):
    text = io.StringIO()
    lines = csv.writer(text, lineterminator='\n')
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
        lines.writerow([path, f'sha256={digest}', len(data)])
    lines.writerow([name, '', ''])
    return text.getvalue().encode()


def build_sdist(sdist_directory, config_settings=None):
    root = f'{PACKAGE}-{version()}'
    files = {name: read(os.path.join(HERE, name)) for name in BUILD}
    files.update(modules())
    files.update({name: read(source(name)) for name in HEADERS + SOURCES + BESIDE})
    files['PKG-INFO'] = metadata()
    with open(os.path.join(sdist_directory, root + '.tar.gz'), 'wb') as file, \
            gzip.GzipFile('', 'wb', fileobj=file, mtime=epoch()) as packed, \
            tarfile.open(fileobj=packed, mode='w', format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f'{root}/{name}')
            entry.size, entry.mtime, entry.mode = len(data), epoch(), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return root + '.tar.gz'


if __name__ == '__main__':
    if len(sys.argv) == 5 and sys.argv[1] == 'wheel':
        print(wheel(*sys.argv[2:]))
    elif len(sys.argv) == 3 and sys.argv[1] == 'sdist':
        print(build_sdist(sys.argv[2]))
    else:
        sys.exit(__doc__)
