#!/usr/bin/env python3
"""Tests of examples/generate on a terminal, of its signals, and of contexts that are full.

    test_cli_terminal.py PATH_TO_GENERATE PATH_TO_MODEL

Prints a line for each case (ok, FAIL, skip) and at the end `terminal: N passed, N failed, N
skipped`; exit code 1 if a case failed. Every step waits for what the program shows, never for a
time: LIMIT only ends what hangs."""
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time

LIMIT = 120
PROGRAM, MODEL = sys.argv[1:3]
RUN = os.environ.get('RUN', '').split()
CONTROL = re.compile(rb'\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][0-9A-B]|\x1b[=>78]|[\x07\x0f]')
HAS_EDITOR = 'libedit' in subprocess.run([*RUN, PROGRAM, '--version'], capture_output=True,
                                         text=True, check=True).stdout
counts = {'ok': 0, 'FAIL': 0, 'skip': 0}


def default_signals():
    signal.signal(signal.SIGINT, signal.SIG_DFL)     # a background job of a shell ignores it


class Failure(Exception):
    pass


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *args, color='off', env=None):
        self.seen = b''                  # all that was shown
        self.at = 0                      # what expect() has passed
        self.limit = time.monotonic() + LIMIT
        command = [*RUN, PROGRAM, '-m', MODEL, '-t', '1', '--color', color, *args]
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            default_signals()
            os.environ.update({'TERM': 'vt100', 'LC_ALL': 'C.UTF-8', 'HOME': '/nonexistent',
                               **(env or {})})
            os.execvp(command[0], command)

    def read(self):
        """More of what is shown; False at its end."""
        if not select.select([self.fd], [], [], max(0, self.limit - time.monotonic()))[0]:
            raise Failure(f'it hangs after {self.seen[-200:]!r}')
        try:
            more = os.read(self.fd, 65536)
        except OSError:                  # Linux says so when the program has ended
            more = b''
        self.seen += more
        return bool(more)

    def expect(self, text):
        """Waits until the text is shown behind what was waited for before."""
        text = text.encode() if isinstance(text, str) else text
        while True:
            plain = self.plain()
            found = plain.find(text, self.at)
            if found >= 0:
                self.at = found + len(text)
                return
            if time.monotonic() > self.limit or not self.read():
                raise Failure(f'{text!r} does not come after {plain[self.at:][-300:]!r}')

    def more(self):
        """Waits until something is shown behind what was waited for."""
        while not self.plain()[self.at:]:
            if not self.read():
                raise Failure('it ends')

    def plain(self):
        """What was shown, without colours and moves of the cursor."""
        return CONTROL.sub(b'', self.seen).replace(b'\r', b'')

    def send(self, text):
        os.write(self.fd, text.encode() if isinstance(text, str) else text)

    def prompt(self):
        self.expect('\n> ')

    def end(self):
        """Waits for the end: the exit code, as a shell has it."""
        while self.read():
            if time.monotonic() > self.limit:
                raise Failure('it does not end')
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        self.pid = 0
        return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def leave(self, code=0):
        """Ctrl-D at the prompt."""
        self.send('\x04')
        same(self.end(), code, 'exit code')

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def same(is_now, expected, what):
    if is_now != expected:
        raise Failure(f'{what}: {is_now!r}, not {expected!r}')


def piped(*args, text='', **more):
    return subprocess.run([*RUN, PROGRAM, '-m', MODEL, '-t', '1', *args], input=text.encode(),
                          capture_output=True, timeout=LIMIT, check=False,
                          preexec_fn=default_signals, **more)


def replies(*messages):
    """What the model says to them, in a pipe."""
    out = piped('-cnv', '--temp', '0', text=''.join(m + '\n' for m in messages)).stdout.decode()
    return out.rstrip('\n').split('\n')


def case(name, *args, env=None, color='off', edit=None):
    """Decorates a test that gets a Terminal: with edited lines (edit True), plain ones or both."""
    def run(test):
        for edited in (False, True) if edit is None else (edit,):
            full = f'terminal-{name}' + ('-edited' if edited else '')
            if edited and not HAS_EDITOR:
                report('skip', full, 'the program was built without libedit')
                continue
            terminal = Terminal(*args, *([] if edited else ['--simple-io']), env=env, color=color)
            try:
                test(terminal)
                report('ok', full)
            except Failure as failure:
                report('FAIL', full, failure)
            finally:
                terminal.kill()
        return test
    return run


def report(result, name, why=''):
    counts[result] += 1
    print(f'{result} {name}' + (f': {why}' if why else ''), flush=True)


def tokens_read(shown):
    return int(re.search(rb'prompt: (\d+) tokens', shown).group(1))


HELLO_TOKENS = tokens_read(piped('-cnv', '--temp', '0', text='Hello\n').stderr)
HELLO, CAPITAL = replies('Hello', 'What is the capital of France?')
ENDLESS = ['--ignore-eos', '-c', '100000', '-n', '100000']


# ---- chats


@case('chat-by-default', '--temp', '0')
def _(t):
    t.expect('/help')
    t.prompt()
    t.send('Hello\n')
    t.expect('Hello\n' + HELLO + '\n')
    t.prompt()
    t.send('What is the capital of France?\n')
    t.expect(CAPITAL + '\n')
    t.prompt()
    t.leave()


@case('first-message', '--temp', '0', '-cnv', '-p', 'Hello')
def _(t):
    t.expect('\n> Hello\n' + HELLO + '\n')
    t.prompt()
    t.leave()


@case('several-lines', '--temp', '0')
def _(t):
    t.prompt()
    t.send('What is the capital\\\n')
    t.expect('... ')
    t.send('of France?\n')
    t.expect('\n' + replies('What is the capital\\', 'of France?')[0] + '\n')
    t.leave()


@case('commands', '--temp', '0')
def _(t):
    t.prompt()
    t.send('Hello\n')
    t.expect(HELLO + '\n')
    t.prompt()
    t.send('/clear\n')
    t.prompt()
    t.send('/nonsense x\n')
    t.expect("'/nonsense' is not a command")
    t.prompt()
    t.send('/help\n')
    t.expect('/exit')
    t.prompt()
    t.send('Hello\n')                    # the first one again
    t.expect('Hello\n' + HELLO + '\n')
    t.prompt()
    t.send('/exit\n')
    same(t.end(), 0, 'exit code')


# ---- keys


@case('keys-are-no-text', '--temp', '0')
def _(t):
    t.prompt()
    # Up, Right, Ctrl-Left, F1, Shift-F5, Delete, PageUp: nothing to answer
    t.send('\x1b[A\x1b[C\x1b[1;5D\x1bOP\x1b[15;2~\x1b[3~\x1b[5~\n')
    t.prompt()
    t.send('Hello\x1b[C\x1b[6~\n')
    t.expect(HELLO + '\n')
    t.prompt()
    t.leave()
    same(tokens_read(t.plain()), HELLO_TOKENS, 'tokens that were read')


@case('cursor-keys', '--temp', '0', edit=True)
def _(t):
    t.prompt()
    # Left twice, Home, Right, Ctrl-Right, Delete, Ctrl-Left, End
    t.send('Hlo\x1b[D\x1b[Dx\x1bOH\x1b[Ce\x1b[3~\x1b[1;5C\x1b[1;5D\x1b[F\x02l\n')
    t.expect(HELLO + '\n')
    t.prompt()
    t.leave()
    same(tokens_read(t.plain()), HELLO_TOKENS, 'tokens that were read')


@case('history', '--temp', '0', edit=True)
def _(t):
    t.prompt()
    t.send('What is the capital of France?\n')
    t.expect(replies('What is the capital of France?')[0] + '\n')
    t.prompt()
    t.send('/clear\n')
    t.prompt()
    t.send('\x1b[A\x1b[A')
    t.expect('France?')
    t.send('\n')
    t.expect(replies('What is the capital of France?')[0] + '\n')
    t.prompt()
    t.leave()


@case('typed-ahead', '-s', '1', '--ignore-eos', '-n', '100', '-c', '2000', edit=True)
def _(t):
    t.prompt()
    t.send('Hello\n')
    t.expect('\n')
    t.more()
    t.send('qqqq')                       # while it writes: kept, and shown at the next prompt
    t.prompt()
    t.expect('qqqq')
    same(t.plain().count(b'qqqq'), 1, 'how often it was shown')
    t.send('\x15')
    t.leave()


# ---- Ctrl-C


@case('interrupt-reply', *ENDLESS)
def _(t):
    t.prompt()
    t.send('Hello\n')
    t.expect('\n')
    t.more()
    t.send('\x03')
    t.prompt()
    t.send('/exit\n')
    same(t.end(), 0, 'exit code')


@case('interrupt-at-the-prompt')
def _(t):
    t.prompt()
    t.send('half a mess')
    t.expect('half a mess')
    t.send('\x03')
    same(t.end(), 130, 'exit code')


@case('interrupt-text', '-p', 'Once upon a time', *ENDLESS, edit=False)
def _(t):
    t.expect('Once upon a time')
    t.more()
    t.send('\x03')
    t.expect('interrupted')
    same(t.end(), 130, 'exit code')


def interrupt_pipe(ignored):
    """SIGINT while text comes into a pipe: exit code, output."""
    child = subprocess.Popen(
        [*RUN, PROGRAM, '-m', MODEL, '-t', '1', '-p', 'Once upon a time', '--ignore-eos', '-c',
         '100000', '-n', '300' if ignored else '100000'],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT,
                                         signal.SIG_IGN if ignored else signal.SIG_DFL))
    first = os.read(child.stdout.fileno(), 1)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=LIMIT)
    return child.returncode, first + out, err


def interrupts():
    try:
        code, out, err = interrupt_pipe(ignored=False)
        same(code, 130, 'exit code')
        same(out[-1:], b'\n', 'the last byte')
        same(b'interrupted' in err, True, 'the closing line')
        report('ok', 'interrupt')
    except Failure as failure:
        report('FAIL', 'interrupt', failure)
    try:
        code, out, err = interrupt_pipe(ignored=True)
        same(code, 0, 'exit code')
        same(b'new: 300 tokens' in err, True, 'the closing line')
        report('ok', 'interrupt-ignored-stays-ignored')
    except Failure as failure:
        report('FAIL', 'interrupt-ignored-stays-ignored', failure)


interrupts()


# ---- what is shown


@case('controls-of-the-prompt', '-n', '1', '-p',
      'a\\x1b[31mb\\x7fc\u202ed\\xc2\\x9be\\xfff\\tg', edit=False)
def _(t):
    t.expect('a\u241b[31mb\u2421c<U+202E>d<U+009B>e\ufffdf')
    same(t.end(), 0, 'exit code')
    same(re.findall('[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]', t.plain().decode()), [],
         'raw controls')
    same(b'\x1b[31m' in t.seen, False, 'a raw colour')


def swapped(path, x, y):
    """The model with the texts of two of its tokens swapped."""
    with open(MODEL, 'rb') as file:
        model = file.read()
    entries = [struct.pack('<Q', len(s.encode())) + s.encode() for s in (x, y)]
    begin = model.index(b'tokenizer.ggml.tokens')
    at = [model.index(e, begin) for e in entries]
    if at[0] > at[1]:
        at.reverse()
        entries.reverse()
    with open(path, 'wb') as file:
        file.write(model[:at[0]] + entries[1] + model[at[0] + len(entries[0]):at[1]] + entries[0] +
                   model[at[1] + len(entries[1]):])


def controls_of_the_model():
    """Where tiny.gguf writes a full stop, this one writes an escape character."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'escape.gguf')
        try:
            swapped(path, '.', '\u011b')
        except ValueError:
            report('skip', 'terminal-controls-of-the-model', 'the model has no such tokens')
            return
        options = ['-m', path, '-p', 'Once upon a time there', '--temp', '0', '-n', '40']
        raw = piped(*options).stdout

        @case('controls-of-the-model', *options, edit=False)
        def _(t):
            same(raw.count(b'\x1b') > 0, True, 'raw ones in a pipe')
            t.expect(raw.decode().replace('\x1b', '\u241b'))
            same(t.end(), 0, 'exit code')


controls_of_the_model()


def has_colour(t):
    t.prompt()
    t.send('Hello\n')
    t.prompt()
    t.send('/exit\n')
    t.end()
    return b'\x1b[1;32m' in t.seen


@case('color-on', color='on', env={'NO_COLOR': '1'})
def _(t):
    same(has_colour(t), True, 'colour')


@case('color-off', color='off')
def _(t):
    same(has_colour(t), False, 'colour')


@case('color-auto', color='auto')
def _(t):
    same(has_colour(t), True, 'colour')


@case('no-color', color='auto', env={'NO_COLOR': '1'})
def _(t):
    same(has_colour(t), False, 'colour')


# ---- the bar: one batch of 8192 tokens takes longer than it takes to appear


with tempfile.NamedTemporaryFile('w') as long_prompt:
    long_prompt.write('yes ' * 8192)
    long_prompt.flush()

    @case('bar', '-f', long_prompt.name, '-c', '100000', '-b', '8192', edit=False)
    def _(t):
        t.expect('prompt [                                        ]   0%')


# ---- a full context: what is kept gives the text that it gives in a new context


def dropped(run):
    """How many tokens, each time."""
    return [int(n) for n in re.findall(rb'oldest (\d+) tokens', run.stderr)]


def check(name, test):
    try:
        test()
        report('ok', name)
    except Failure as failure:
        report('FAIL', name, failure)


def shift_keeps_turns():
    """Of three turns the first is dropped; the third answer is that of a chat without it."""
    talk = ['Tell me a story.', 'What is the capital of France?', 'Tell me a story about a dog.']
    options = ['-cnv', '--temp', '0', '-n', '100']

    def chat(*messages, context):
        run = piped(*options, '-c', context, text='\n'.join(messages) + '\n')
        same(run.returncode, 0, 'exit code')
        return run, run.stdout.decode().split('\n')

    full, answers = chat(*talk, context='160')
    _, without = chat(*talk[1:], context='512')
    same(len(dropped(full)), 1, 'how often something was dropped')
    same(answers[1:], without, 'the answers')


def shift_drops_turns():
    """A message that leaves no room for any old turn."""
    long = 'Tell me a story about ' + 'a dog and ' * 20 + 'a cat.'
    options = ['-cnv', '--temp', '0', '-c', '128', '-n', '30', '-sys', 'You are helpful.']
    full = piped(*options, text=f'Hello\nTell me a story.\n{long}\n')
    alone = piped(*options, text=f'{long}\n')
    same(len(dropped(full)), 1, 'how often something was dropped')
    same(full.stdout.split(b'\n')[2:], alone.stdout.split(b'\n'), 'the answer')


def shift_after_load():
    """A chat that was saved with another system message: what is kept begins with a message, too."""
    talk = ['Tell me a story.', 'What is the capital of France?', 'Tell me a story about a dog.']
    options = ['-cnv', '--temp', '0', '-n', '40']
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'saved')
        piped(*options, '-sys', 'You are a helpful assistant.',
              text=f'{talk[0]}\n{talk[1]}\n/save {path}\n')
        loaded = piped(*options, '-c', '112', text=f'/load {path}\n{talk[2]}\n')
    without = piped(*options, text=f'{talk[1]}\n{talk[2]}\n')
    same(len(dropped(loaded)), 1, 'how often something was dropped')
    same(loaded.stdout, without.stdout.split(b'\n', 1)[1], 'the answer')


def shift_in_text():
    """Behind the first time, the text is what follows the tokens that were kept."""
    def text(n, *options, prompt='Once upon a time'):
        run = piped('-p', prompt, '--temp', '0', '--ignore-eos', '-n', str(n), *options)
        same(run.returncode, 0, 'exit code')
        return run, run.stdout.decode()[:-1]

    # BOS and 4 tokens of prompt, 60 new ones: 64, and one that is pending
    run, shifted = text(80, '-c', '64', '--context-shift', '-v')
    same(dropped(run), [33], 'dropped tokens')
    full = text(60)[1]
    kept = full[len(text(60 - 31)[1]):]
    same(shifted, full + text(20, prompt=kept)[1][len(kept):], 'the text')


def shift_keeps_prompt():
    run = piped('-p', 'Once upon a time', '--temp', '0', '--ignore-eos', '-n', '80', '-c', '64',
                '--context-shift', '--keep', '-1', '-v')
    same(dropped(run), [65 - 5 - 29], 'dropped tokens')    # all 5 of the prompt, half of 59


check('shift-keeps-turns', shift_keeps_turns)
check('shift-drops-turns', shift_drops_turns)
check('shift-after-load', shift_after_load)
check('shift-in-text', shift_in_text)
check('shift-keeps-prompt', shift_keeps_prompt)

print(f'terminal: {counts["ok"]} passed, {counts["FAIL"]} failed, {counts["skip"]} skipped')
sys.exit(counts['FAIL'] > 0)
