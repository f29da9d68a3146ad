"""wheel.py WHEEL VERSION PLATFORM: fails unless the wheel is what the specification asks for."""
import base64
import csv
import email
import hashlib
import io
import sys
import zipfile

path, version, platform = sys.argv[1:]
archive = zipfile.ZipFile(path)
names = archive.namelist()
info = f'bitnet_h-{version}.dist-info'
wanted = {f'bitnet_h/{name}' for name in (
    '__init__.py', '__main__.py', '_declarations.py', '_library.py', '_model.py', 'libbitnet.so', 'py.typed')}
wanted |= {f'{info}/{name}' for name in ('METADATA', 'WHEEL', 'RECORD', 'licenses/LICENSE')}
assert set(names) == wanted and len(names) == len(wanted), set(names) ^ wanted
assert archive.testzip() is None
assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}

record = list(csv.reader(io.StringIO(archive.read(f'{info}/RECORD').decode())))
assert [line[0] for line in record] == names, record
for name, digest, size in record:
    data = archive.read(name)
    if name == f'{info}/RECORD':
        assert (digest, size) == ('', '')
    else:
        sha = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')
        assert (digest, int(size)) == ('sha256=' + sha, len(data)), name

metadata = email.message_from_bytes(archive.read(f'{info}/METADATA'))
assert (metadata['Name'], metadata['Version'], metadata['License-Expression']) == ('bitnet-h', version, 'MIT')
assert metadata['Requires-Python'] == '>=3.8' and metadata['License-File'] == 'LICENSE'
assert metadata.get_payload().startswith('# bitnet-h\n') and 'Model(' in metadata.get_payload()
tags = email.message_from_bytes(archive.read(f'{info}/WHEEL'))
assert tags['Tag'] == f'py3-none-{platform}' and tags['Root-Is-Purelib'] == 'false'
assert tags['Wheel-Version'] == '1.0' and path.endswith(f'/bitnet_h-{version}-py3-none-{platform}.whl')
