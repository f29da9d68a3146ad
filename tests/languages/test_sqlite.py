"""Tests of examples/languages/sqlite.c, whose vectors must be those of the program embed, bit for bit.

    test_sqlite.py EXTENSION EMBED MODEL      EXTENSION without .so

Prints a line for each case and `end` behind the last one."""
import array
import math
import sqlite3
import subprocess
import sys

extension, embed, tiny = sys.argv[1:]
TEXTS = ['Once upon a time there was a little boy.', 'The dog', 'The cat', 'Bread needs an hour in the oven.',
         'Paris is the capital of France.', 'Grüße aus 東京', 'x', 'The sky is blue.']
QUERY = 'What is the capital of France?'


def check(name, holds, why=''):
    print(f'ok sqlite-{name}' if holds else f'FAIL sqlite-{name}: {why}', flush=True)


def connect():
    db = sqlite3.connect(':memory:')
    db.enable_load_extension(True)
    db.load_extension(extension)
    return db


def one(db, sql, *values):
    return db.execute(sql, values).fetchone()[0]


def refused(name, words, db, sql, *values):
    try:
        check(name, False, one(db, sql, *values))
    except sqlite3.Error as e:
        check(name, words in str(e), e)


def vectors(texts, pooling):
    """Bytes of each, by the program."""
    out = subprocess.run([embed, '-m', tiny, '--pooling', pooling, '-q', '--format', 'raw'], check=True,
                         input='\n'.join(texts).encode(), stdout=subprocess.PIPE).stdout
    size = len(out) // len(texts)
    return [out[i:i + size] for i in range(0, len(out), size)]


def cosine(a, b):
    a, b = array.array('f', a), array.array('f', b)
    dots = [0.0, 0.0, 0.0]
    for x, y in zip(a, b):                     # in this order, as sum() of newer versions is more exact
        dots[0] += x * y
        dots[1] += x * x
        dots[2] += y * y
    return dots[0] / math.sqrt(dots[1] * dots[2])


db = connect()
refused('no-model', "there is no model: SELECT embed_model(", db, 'SELECT embed(?)', 'x')
check('null-without-model', one(db, 'SELECT embed(NULL)') is None)
refused('no-file', "cannot open 'none.gguf'", db, "SELECT embed_model('none.gguf')")
refused('no-file-name', 'file is missing', db, 'SELECT embed_model(NULL)')
refused('not-a-model', 'GGUF', db, 'SELECT embed_model(?)', extension + '.so')
for number, pooling in enumerate(['max', None]):
    refused(f'pooling-{number}', 'no such pooling', db, 'SELECT embed_model(?, ?)', tiny, pooling)
mean = vectors(TEXTS, 'mean')
check('model', one(db, "SELECT embed_model(?, 'mean')", tiny) == len(mean[0]) // 4)
refused('second-model', 'has a model already', db, 'SELECT embed_model(?)', tiny)
for text, vector in zip(TEXTS, mean):
    check(f'embed {text}', one(db, 'SELECT embed(?)', text) == vector, 'other bits')
check('null', db.execute('SELECT embed(NULL), cosine(NULL, embed(?)), cosine(embed(?), NULL)', 'xx').fetchone() ==
      (None, None, None))
refused('too-long', 'tokens', db, 'SELECT embed(?)', 'dog ' * 100000)
check('after-errors', one(db, 'SELECT embed(?)', TEXTS[1]) == mean[1])

other = connect()
refused('own-model', 'there is no model', other, "SELECT embed('x')")
one(other, "SELECT embed_model(?, 'last')", tiny)
last = one(other, 'SELECT embed(?)', TEXTS[0])
check('pooling-last', last == vectors(TEXTS[:1], 'last')[0] and last != mean[0])
other.close()
other = connect()
one(other, 'SELECT embed_model(?)', tiny)
refused('model-says-no-pooling', 'pooling', other, "SELECT embed('x')")
other.close()

db.execute('CREATE TABLE notes (body TEXT, vector BLOB AS (embed(body)) STORED)')
db.executemany('INSERT INTO notes VALUES (?)', [[text] for text in TEXTS])
check('column', [row[0] for row in db.execute('SELECT vector FROM notes ORDER BY rowid')] == mean)
query = vectors([QUERY], 'mean')[0]
NEAREST = 'SELECT body, cosine(vector, embed(?)) AS likeness FROM notes ORDER BY likeness DESC LIMIT 5'
want = sorted(((text, cosine(vector, query)) for text, vector in zip(TEXTS, mean)), key=lambda pair: -pair[1])
check('nearest', db.execute(NEAREST, [QUERY]).fetchall() == want[:5],
      f'{db.execute(NEAREST, [QUERY]).fetchall()}, not {want[:5]}')
check('same-direction', abs(one(db, 'SELECT cosine(embed(?), embed(?))', 'x', 'x') - 1) < 1e-15)
# Once jumps over what has run already; some versions put this behind Halt instead, in front of the loop.
program = db.execute("EXPLAIN SELECT body FROM notes ORDER BY cosine(vector, embed('The dog'))").fetchall()
calls = {row[5]: row[0] for row in program if row[1] == 'Function'}
check('once', any(calls['embed(1)'] > row[0] and (row[1] == 'Halt' or row[1] == 'Once' and calls['embed(1)'] < row[3])
                  for row in program) and 'cosine(2)' in calls, program)
for name, a, b in (('sizes', 'zeroblob(8)', 'zeroblob(4)'), ('no-floats', 'zeroblob(6)', 'zeroblob(6)'),
                   ('empty', "x''", "x''")):
    refused(name, 'not two vectors', db, f'SELECT cosine({a}, {b})')
check('zeros', one(db, 'SELECT cosine(zeroblob(8), zeroblob(8))') is None)    # 0 / 0, which SQL does not have
db.execute("CREATE VIEW opens AS SELECT embed_model('x.gguf')")
refused('view-opens-no-file', 'unsafe use', db, 'SELECT * FROM opens')
for n in 1, 2:                                 # the others still have the model
    db.create_function('embed_model', n, lambda *_: 'mine')
check('replaced', one(db, "SELECT embed_model('x')") == 'mine' and one(db, 'SELECT embed(?)', 'The dog') == mean[1])
db.close()
print('end')
