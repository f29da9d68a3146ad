"""test_ports.py FOLDER VERSION URL: the recipes that ./build.sh dist has filled in, in FOLDER/ports, are
well formed, and name this version and files of the release with their checksums. Ends with
"N passed, N failed, N skipped"."""
import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys

folder, version, url = sys.argv[1:]
ports = os.path.join(folder, 'ports')
passed = failed = skipped = 0


def check(name, good, what=''):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f'FAIL {name}: {what}')


def skip(name, why):
    global skipped
    skipped += 1
    print(f'skip {name}: {why}')


def read(*path):
    with open(os.path.join(ports, *path), encoding='utf-8') as file:
        return file.read()


files = [os.path.relpath(os.path.join(where, name), ports)
         for where, _, names in os.walk(ports) for name in names]
check('recipes', len(files) == 7, files)
for file in files:
    check(f'{file} is filled in', not re.search('@[A-Za-z_]', read(file)) and not file.endswith('.in'),
          'an @NAME@ is left')

# Every file of the release that a recipe names is there, and the checksum behind it is its own.
for file in files:
    lines = [line for line in read(file).splitlines() if not line.lstrip().startswith('#')]
    text = '\n'.join(lines) if file != 'README.md' else ''
    named = re.findall(re.escape(url) + r'/([^\s"]+)"?\s+\w*sha256:?\s+"?([0-9a-f]+)', text, re.I)
    check(f'{file} names each URL with its checksum', len(named) == text.count(url + '/'), text)
    for name, digest in named:
        with open(os.path.join(folder, name), 'rb') as data:
            check(f'{file}: {name}', hashlib.sha256(data.read()).hexdigest() == digest, digest)

tree = ast.parse(read('conan', 'conanfile.py'))
recipe = next(node for node in tree.body if isinstance(node, ast.ClassDef))
methods = {node.name for node in recipe.body if isinstance(node, ast.FunctionDef)}
check('conanfile.py', {'source', 'build', 'package', 'package_info'} <= methods, methods)
for name, command in {'ruby': ['ruby', '-c', 'homebrew/bitnet-h.rb'],
                      'yamllint': ['yamllint', '-d', '{extends: relaxed, rules: {line-length: disable}}',
                                   'winget', 'conan']}.items():
    if not shutil.which(command[0]):
        skip(name, f'{name} is not installed')
        continue
    run = subprocess.run(command, cwd=ports, capture_output=True, text=True)
    check(name, run.returncode == 0, run.stdout + run.stderr)
for file in filter(lambda name: name.startswith('winget'), files):
    text = read(file)
    check(f'{file}: one version', re.search(rf'^PackageVersion: {re.escape(version)}$', text, re.M), text)
    kind = re.search(r'^ManifestType: (\w+)$', text, re.M).group(1)
    check(f'{file}: its name', {'version': 'BitnetH.yaml', 'installer': 'installer.yaml',
                                'defaultLocale': 'en-US.yaml'}[kind] in file, kind)
    for inner in re.findall(r'RelativeFilePath: (\S+)', text):
        archive = os.path.join(folder, inner.split('\\')[0] + '.zip')
        names = subprocess.run([sys.executable, '-m', 'zipfile', '-l', archive], capture_output=True,
                               text=True).stdout
        check(f'{file}: {inner}', inner.replace('\\', '/') in names, names)
print(f'{passed} passed, {failed} failed, {skipped} skipped')
sys.exit(failed > 0)
