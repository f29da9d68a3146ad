"""Tests the Python package bitnet_h as it is installed.
    test_python.py MODEL TEXTS [CHAT_MODEL]
TEXTS: a folder with what generate wrote: story (100 tokens), dog (40), sampled (40), chat.
CHAT_MODEL: a model that thinks, from tests/server/chat_model.c. Ends with "N passed, N failed, N skipped".
"""
import contextlib
import copy
import decimal
import enum
import fractions
import gc
import importlib.metadata
import io
import json
import math
import mmap
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import bitnet_h
from bitnet_h import (ArgumentError, BitnetError, BusyError, ClosedError, ContextFullError, FileError,
                      FormatError, Model, UnsupportedError, _library)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases
from cases import Skip

PATH, TEXTS = sys.argv[1:3]
CHAT_MODEL = sys.argv[3] if len(sys.argv) > 3 else None
STORY, DOG, HELLO = 'Once upon a time', 'The dog', {'role': 'user', 'content': 'Hello!'}
LONG = 'The cat sat on the mat. ' * 1000       # some seconds
SOME = LONG[:9600]                             # a second
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": [1, "\u00e4"]}}\n</tool_call>'
TOOL = {'name': 'f', 'parameters': {'type': 'object'}}
EVERY_CHARACTER = 'root ::= "a\u00e4\u20ac\U0001f642"'


def wanted(name):
    with open(os.path.join(TEXTS, name), encoding='utf-8', newline='') as file:
        return file.read()


def refused(kind, word, function, *arguments, **options):
    """It is exactly this exception, whose text has the word."""
    try:
        function(*arguments, **options)
    except BitnetError as e:
        assert type(e) is kind and word in str(e), (type(e), str(e))
    else:
        assert False, f'not refused: {word}'


def grammar_of(text):
    """A grammar of this text alone."""
    return 'root ::= ' + json.dumps(text, ensure_ascii=False)


# ---- texts ----

def same_text():
    """That of generate: in pieces and as a whole, from a path, bytes and files, with any threads."""
    with Model(PATH) as model:
        pieces = list(model.generate(STORY, max_tokens=100))
        assert len(pieces) > 50 and ''.join(pieces) == wanted('story'), pieces
        assert model.generate(model.tokenize(STORY, bos=True), max_tokens=100).text() == wanted('story')
        assert str(model.generate(STORY, max_tokens=40, temperature=0.9, seed=7)) == wanted('sampled')
        other = model.generate(STORY, max_tokens=40, temperature=0.9)
        again = model.generate(STORY, max_tokens=40, temperature=0.9, seed=other.stats.seed)
        assert other.text() == again.text() != wanted('sampled')
        assert model.generate(STORY, max_tokens=100, lookup=4).text() == wanted('story')
    with open(PATH, 'rb') as file:
        data = file.read()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for source, options in ((data, {}), (memoryview(data), {'threads': 1}), (file, {'copy': True}),
                                (mapped, {})):
            assert Model(source, **options).generate(DOG, max_tokens=40).text() == wanted('dog')


def ends():
    """Why a text ended, and what was done for it."""
    with Model(PATH) as model:
        stream = model.generate(STORY, max_tokens=9)
        assert stream.stats.reason is None and not stream.stats.tokens
        stream.text()
        stats = stream.stats
        assert (stats.reason, stats.tokens) == ('length', 9) and stats.seconds > 0, stats
        assert stats.prompt_tokens == len(model.tokenize(STORY, bos=True)) and not stats.reused_tokens
        stop = wanted('story').split()[6]
        for stops in (stop, ['\0', stop]):
            stream = model.generate(STORY, stop=stops)
            assert stream.text() == wanted('story')[:wanted('story').index(stop)]
            assert stream.stats.reason == 'stop'
        stream = model.chat('Hello!')
        assert stream.text() == wanted('chat') and stream.stats.reason == 'end'
        stream = model.generate(STORY)
        assert next(stream) and not stream.close() and list(stream) == []
        assert stream.stats.reason == 'abort' and stream.stats.tokens >= 1
        first = model.tokenize(wanted('story'))[0]
        forbidden = model.generate(STORY, max_tokens=1, logit_bias={first: -math.inf})
        assert not wanted('story').startswith(forbidden.text())


def characters():
    """Pieces are whole characters, also where a character is of several tokens."""
    with Model(PATH) as model:
        pieces = list(model.generate(STORY, grammar=EVERY_CHARACTER))
        assert ''.join(pieces) == 'a\u00e4\u20ac\U0001f642' and len(pieces) > 1, pieces
        text = 'a\u00e4\0\u20ac'
        assert model.detokenize(model.tokenize(text)) == text
        assert len(model.tokenize('<|eot_id|>', special=True)) == 1 < len(model.tokenize('<|eot_id|>'))
        for seed in range(5):                  # noise, which has bytes that are no character
            for piece in model.generate(STORY, max_tokens=50, temperature=100., top_k=0, top_p=1.,
                                        min_p=0., seed=seed):
                assert piece == piece.encode().decode()


def forms():
    """Grammars, and schemas as texts and as objects."""
    schema = {'type': 'object', 'required': ['n'],
              'properties': {'n': {'type': 'integer', 'minimum': 5, 'maximum': 7}}}
    with Model(PATH) as model:
        for each in schema, json.dumps(schema):
            value = json.loads(model.chat('A number?', json_schema=each).text())
            assert list(value) == ['n'] and 5 <= value['n'] <= 7, value
        assert model.generate(STORY, grammar='root ::= "yes" | "no"').text() in ('yes', 'no')
        refused(FormatError, 'line', model.generate, STORY, grammar='root := "a"')
        refused(UnsupportedError, '', model.chat, 'A?', json_schema={'$ref': 'file:///x'})
        refused(ArgumentError, 'one is possible', model.chat, 'A?', json_schema={}, grammar='root ::= "a"')


# ---- chats ----

def conversation():
    """As messages or one by one, it is the same text, and only what is new is read."""
    more = {'role': 'user', 'content': 'Tell me a story.'}
    with Model(PATH) as model:
        first = model.chat([HELLO])
        assert first.text() == wanted('chat')
        second = model.chat([HELLO, first.message, more], max_tokens=60)
        text, read = second.text(), second.stats.prompt_tokens - second.stats.reused_tokens
        assert len(text) > 50 and read < second.stats.reused_tokens + 10 and second.stats.reused_tokens > 15
        with Model(PATH) as other:             # which knows nothing of it, and may have other tokens
            whole = other.chat([HELLO, first.message, more], max_tokens=60)
            assert whole.text() and not whole.stats.reused_tokens
        with model.session() as session:
            session.chat('Hello!').text()
            turn = session.chat('Tell me a story.', max_tokens=60)
            assert turn.text() == text
            assert turn.stats.prompt_tokens == second.stats.prompt_tokens, (turn.stats, second.stats)
            assert turn.stats.prompt_tokens - turn.stats.reused_tokens == read
            said = {'role': 'assistant', 'content': turn.text()}
            edited = session.chat([HELLO, first.message, dict(more, content='Who are you?')])
            assert edited.text() != text and 10 < edited.stats.reused_tokens < second.stats.prompt_tokens
            history = [HELLO, first.message, dict(more, content='Who are you?'), edited.message, HELLO]
            assert session.chat(history).stats.reused_tokens > edited.stats.prompt_tokens
            history = [HELLO, first.message, more, said, HELLO]
            assert session.chat(history).stats.reused_tokens < edited.stats.prompt_tokens
            session.clear()
            assert not session.tokens and session.chat('Hello!').text() == wanted('chat')


def refused_message():
    """It leaves the session as it was, and what stands in front of its chat."""
    with Model(PATH) as model, model.session() as session, model.session() as other:
        first = session.chat([HELLO])
        first.text()
        held, messages = session.tokens, [HELLO, first.message]
        try:
            session.chat(messages + [dict(HELLO, content='\ud800')], tools=[TOOL])
            assert False, 'half a character was taken'
        except UnicodeEncodeError:
            pass
        assert session.tokens == held
        session.chat(messages + [HELLO], tools=[TOOL], max_tokens=1).text()
        other.chat(messages + [HELLO], tools=[TOOL], max_tokens=1).text()
        assert session.tokens == other.tokens, (session.tokens, other.tokens)


def going_on():
    """A session's text goes on where it ended; what is saved goes on in another model."""
    with Model(PATH) as model, model.session() as session:
        first = session.generate(STORY, max_tokens=60).text()
        state = session.save()
        rest = session.generate(max_tokens=40).text()
        assert (first + rest).replace('\ufffd', '') == wanted('story')
        with Model(PATH, threads=1) as other, other.session() as restored:
            restored.load(state)
            stream = restored.generate(max_tokens=40)
            assert stream.text() == rest and stream.stats.prompt_tokens - stream.stats.reused_tokens == 1
            refused(FormatError, '', restored.load, state[:-9])
            assert len(restored.tokens) == len(session.tokens)
        stream = session.generate(STORY + first, max_tokens=5)
        assert stream.stats.reused_tokens > 20 and stream.text()
        session.chat('Hello!').text()
        state = session.save()
        session.clear()
        session.load(state)
        assert len(session.chat('And then?', max_tokens=5).text()) > 0


def replies():
    """Thinking, text and calls are told apart, and the message keeps them all."""
    if not CHAT_MODEL:
        raise Skip('there is no model that thinks')
    with Model(CHAT_MODEL) as model:
        assert model.info.chat.thinking, model.info
        text = '<think>\nWell.\n</think>\n\nYes.'
        stream = model.chat('A?', grammar=grammar_of(text))
        assert ''.join(stream) == 'Yes.' and stream.thinking == 'Well.', (stream.message, stream.thinking)
        assert stream.message == {'role': 'assistant', 'content': text}
        calls = model.chat('A?', tools=[TOOL], grammar=grammar_of('Go.' + CALL + CALL))
        kinds = [part.kind for part in calls.parts()]
        assert set(kinds) == {'text', 'tool_call'} and calls.text() == 'Go.'
        expected = {'name': 'f', 'arguments': {'x': [1, '\u00e4']}}
        assert calls.tool_calls == [expected, expected], calls.tool_calls
        off = model.chat('A?', thinking=False, grammar=grammar_of('Yes.'))
        assert off.text() == 'Yes.' and off.stats.prompt_tokens > stream.stats.prompt_tokens
        answer = {'role': 'tool', 'content': '1'}
        history = [{'role': 'user', 'content': 'A?'}, calls.message, answer]
        assert model.chat(history, tools=[TOOL], grammar=grammar_of('1')).text() == '1'


def without_thinking():
    with Model(PATH) as model:
        text = model.chat('A?', grammar=grammar_of('Go.' + CALL))
        assert text.text() == 'Go.' + CALL and not text.tool_calls          # no tools were given


def batch():
    """Each text is the one that it is alone."""
    with Model(PATH) as model:
        assert model.batch([]) == []
        for parallel in 1, 2, 8:
            streams = model.batch([STORY, DOG, [HELLO], STORY], parallel=parallel, max_tokens=40)
            assert [s.text() for s in streams] == [
                wanted('story')[:len(streams[0].text())], wanted('dog'), wanted('chat'), streams[0].text()]
            assert streams[0].stats.tokens == 40 and len(streams[0].text()) > 100
        refused(ContextFullError, 'prompt 1: ', model.batch, [STORY, LONG, DOG])
        drawn = model.batch([DOG, STORY], max_tokens=40, temperature=0.9, seed=7)
        assert drawn[1].text() == wanted('sampled')
        drawn = model.batch([STORY, DOG], max_tokens=40, temperature=0.9, seed=7)
        assert drawn[0].text() == wanted('sampled')
        for one in STORY, '', b'Once', HELLO, [HELLO]:
            refused(ArgumentError, 'a list of texts', model.batch, one)


# ---- vectors ----

def vectors():
    """Alone and among others, of length 1, as numpy's or as lists."""
    texts = ['The cat sat.', 'A cat was sitting.', DOG, ''] * 6
    with Model(PATH) as model:
        many = model.embed(texts, pooling='mean')
        assert len(many) == 24 and len(many[0]) == model.info.dims == 256
        try:
            import numpy
            assert isinstance(many, numpy.ndarray) and many.dtype == numpy.float32
        except ImportError:
            assert isinstance(many, list) and isinstance(many[0][0], float)
        many = [list(map(float, row)) for row in many]
        for i in range(4):
            one = model.embed(texts[i], pooling='mean')
            assert list(map(float, one)) == many[i] == many[i + 20]
            assert abs(sum(x * x for x in many[i]) - 1) < 1e-5
        assert len({tuple(row) for row in many}) == 4
        raw = model.embed(DOG, pooling='last', raw=True)
        assert abs(sum(float(x) ** 2 for x in raw) - 1) > 0.1
        query = model.embed(DOG, pooling='mean', query='Find it')
        assert list(map(float, query)) == list(map(float, model.embed(
            'Instruct: Find it\nQuery: The dog', pooling='mean')))
        refused(ArgumentError, 'pooling', model.embed, DOG)
        refused(ArgumentError, 'pooling', model.embed, DOG, pooling='most')
        refused(ContextFullError, '', model.embed, LONG, pooling='mean')
        assert len(model.embed(LONG, pooling='mean', cut=True)) == 256
        assert len(model.embed([], pooling='mean')) == 0


# ---- the model ----

def about():
    seen = []
    with Model(PATH, context=128, progress=lambda done, total: seen.append((done, total))) as model:
        size = os.path.getsize(PATH)
        assert len(seen) > 2 and seen[-1] == (size, size) == (model.info.file_bytes,) * 2
        assert (model.info.context, model.info.context_trained, model.info.has_head) == (128, 512, True)
        assert model.info.chat.name == 'bitnet-2b-4t' and not model.info.chat.thinking
        assert model.metadata['general.architecture'] == model.info.arch == 'bitnet-b1.58'
        assert bitnet_h.__version__ == _library.name(_library.lib.bitnet_version())
        refused(ContextFullError, '', model.generate, LONG)
        assert model.generate(STORY).stats.reason is None
        long = model.generate(STORY, grammar='root ::= [a-z ]*')
        long.text()
        assert long.stats.reason == 'length' and len(STORY) + long.stats.tokens > 100


def errors():
    """Each with the library's words, and also what Python calls it."""
    refused(FileError, 'no-such-file', Model, 'no-such-file')
    refused(FormatError, __file__ + ': GGUF header', Model, __file__)
    with open(PATH, 'rb') as file:
        refused(FormatError, 'past the end', Model, file.read(100000))
        refused(UnsupportedError, 'version', Model, b'GGUF' + bytes(100))
    refused(ArgumentError, 'kv_type', Model, PATH, kv_type='f64')
    assert issubclass(FileError, OSError) and issubclass(ArgumentError, ValueError)
    with Model(PATH) as model:
        refused(ArgumentError, 'role', model.chat, [{'role': 'user'}])
        refused(ArgumentError, "'name'", model.chat, [dict(HELLO, name='x')])
        refused(ArgumentError, 'stop string', model.generate, STORY, stop='')
        for token in -1, 2048, (1 << 32) + 5:
            for take in model.detokenize, model.generate:
                refused(ArgumentError, f'token: {token} ', take, [token])
        dog = model.generate(DOG, max_tokens=(1 << 40) + 1, top_k=1 << 32, temperature=0.9)
        dog.text()
        assert dog.stats.tokens > 1
        for nothing in None, []:               # not: go on with what the last one wrote
            refused(ArgumentError, 'no messages', model.chat, nothing)
        refused(ArgumentError, 'no prompt', model.generate, None)
        refused(ArgumentError, 'no prompt', model.batch, [DOG, None])
        refused(ArgumentError, 'a text', model.generate, DOG.encode())
        for wrong in HELLO, iter([HELLO]), [DOG]:
            refused(ArgumentError, 'list of messages', model.chat, wrong)
        for wrong in TOOL, ['f'], [{}], [{'function': 5}], 5:
            refused(ArgumentError, 'tools', model.chat, DOG, tools=wrong)
        session = model.session()
        stream = session.chat('Hello!')
        refused(BusyError, 'another text', session.chat, 'Hello!')
        refused(BusyError, 'another text', session.save)
        stream.close()
        assert session.chat('Hello!').text() == wanted('chat')
    refused(ClosedError, 'model', model.generate, STORY)
    refused(ClosedError, 'model', model.tokenize, STORY)
    refused(ClosedError, 'session', session.chat, 'Hello!')

    def fail(*_):
        raise KeyError('mine')
    for function, *arguments in (Model, PATH), (model_with, fail):
        try:
            function(*arguments, progress=fail)
            assert False
        except KeyError as e:
            assert 'mine' in str(e)


def numbers():
    """Those that make no sense are refused by their names, and not taken for others."""
    nan, inf, over = math.nan, math.inf, 1 << 32
    wrong = {'max_tokens': (0, -1), 'temperature': (nan, -1), 'top_k': (-2,), 'top_p': (nan, -1, 1.5),
             'min_p': (nan, -1, 1.5), 'repeat_penalty': (nan, -1), 'frequency_penalty': (nan,),
             'presence_penalty': (nan,), 'lookup': (-1, 9, over), 'seed': (-1, 1 << 64),
             'logit_bias': ({0: nan}, {-1: 1.}, {2048: 1.}, {over + 5: 1.})}
    with Model(PATH) as model:
        for name, values in wrong.items():
            for value in values:
                refused(ArgumentError, name, model.generate, STORY, **{name: value})
        refused(ArgumentError, 'parallel', model.batch, [STORY], parallel=0)
        for name, values in ('context', (0, -1, over + 64)), ('threads', (-1, 257, over + 1)):
            for value in values:
                refused(ArgumentError, name, Model, PATH, **{name: value})
        best = model.generate(STORY, max_tokens=20).text()
        for options in {'top_p': 0}, {'top_k': 1}, {'min_p': 1}:     # not: all tokens
            drawn = model.generate(STORY, max_tokens=20, temperature=inf, **options)
            assert drawn.text() == best, options
        model.generate(STORY, max_tokens=1, temperature=0.9, top_k=-1, seed=(1 << 64) - 1).text()
        model.generate(STORY, max_tokens=inf, top_k=inf, temperature=10 ** 400).close()
        refused(ArgumentError, 'temperature', model.generate, STORY, temperature=-10 ** 400)
        refused(ArgumentError, 'temperature', model.generate, STORY, temperature=decimal.Decimal('sNaN'))
        for number in enum.IntEnum('E', 'one two').two, True, fractions.Fraction(1, 2), decimal.Decimal(1):
            model.generate(STORY, temperature=number, logit_bias={5: number}).close()
        for parallel in 5000, inf:
            assert len(model.batch([DOG, STORY], parallel=parallel, max_tokens=1)) == 2
        try:                                   # a class that has a number
            import numpy
            stream = model.generate(STORY, max_tokens=numpy.int64(2), temperature=numpy.float32(0.5),
                                    seed=numpy.uint64(5))
            assert stream.text() and stream.stats.tokens == 2
            assert model.detokenize(numpy.array([1, 2])) == model.detokenize([1, 2])
        except ImportError:
            pass


def kinds():
    """An argument of another type is a TypeError that names it; nothing is left out in silence."""
    def is_wrong(word, function, *arguments, **options):
        try:
            function(*arguments, **options)
            assert False, f'{word}: not refused'
        except TypeError as e:
            assert word in str(e), (word, e)
    with Model(PATH) as model, model.session() as session:
        is_wrong("'top'", model.generate, STORY, top=3)
        for name, value in (('max_tokens', 2.), ('max_tokens', '3'), ('temperature', '1'), ('top_k', None),
                            ('lookup', 1.5), ('seed', 'a'), ('stop', [b'x']), ('grammar', b'x'),
                            ('logit_bias', [(0, 1)]), ('logit_bias', {'a': 1}), ('logit_bias', {0: 'a'})):
            is_wrong(name, model.generate, STORY, **{name: value})
        for name, value in ('tools', [TOOL]), ('thinking', False), ('effort', 'low'):
            is_wrong(name, model.generate, STORY, **{name: value})
        is_wrong('stop', model.generate, STORY, stop=5)
        is_wrong('effort', model.chat, DOG, effort=5)
        want = model.chat(DOG, tools=[TOOL]).stats.prompt_tokens
        for tools in (TOOL,), {'f': TOOL}.values(), iter([TOOL]):
            assert model.chat(DOG, tools=tools).stats.prompt_tokens == want
        for stream in model.batch([[HELLO], [HELLO]], tools=iter([TOOL]), max_tokens=1):
            assert stream.stats.prompt_tokens > 100
        is_wrong('message 1', model.chat, [HELLO, 5])
        is_wrong('parallel', model.batch, [STORY], parallel='2')
        is_wrong('text', model.tokenize, b'x')
        is_wrong('texts', model.embed, [None], pooling='mean')
        session.generate(DOG, max_tokens=2).text()
        state, held = session.save(), session.tokens
        for wrong in 'x' * len(state), 5:
            is_wrong('state', session.load, wrong)
        for right in bytearray(state), memoryview(state):
            session.clear()
            session.load(right)
            assert session.tokens == held
        for each in model, session, model.generate(DOG):
            for copied in copy.copy, copy.deepcopy, pickle.dumps:
                is_wrong('cannot be copied', copied, each)
        assert pickle.loads(pickle.dumps(model.info)) == model.info
    for gives in (lambda n: b'x' * (n + 1)), (lambda n: 'x' * n), bytearray:
        file = io.BytesIO(bytes(10 ** 6))
        file.read = gives
        is_wrong('read(', Model, file)
    with open(PATH, encoding='latin-1') as file:
        for wrong in None, 5, file, io.StringIO('GGUF'):
            is_wrong('source', Model, wrong)


def model_with(_fail, progress):
    """The progress of a prompt."""
    with Model(PATH) as model:
        try:
            model.generate(STORY, progress=progress).text()
        finally:
            assert model.generate(DOG, max_tokens=40).text() == wanted('dog')


# ---- memory ----

def freed():
    """What nothing refers to is freed, at once and in any order."""
    lib, frees = _library.lib, []
    names = 'bitnet_ctx_free', 'bitnet_gen_end', 'bitnet_model_free', 'bitnet_grammar_free'
    originals = {name: getattr(lib, name) for name in names}
    for name in names:
        setattr(lib, name, lambda pointer, name=name: frees.append(name) or originals[name](pointer))
    try:
        model = Model(PATH)
        for text in model.generate(STORY, grammar='root ::= [a-z ]*'):
            break
        assert frees.count('bitnet_gen_end') == 1 and len(model._idle[False]) == 1
        assert frees.count('bitnet_grammar_free') == 1, frees        # not that of the vocabulary
        stream = model.generate(DOG, max_tokens=40)
        session = model.session()
        half = session.generate(DOG, max_tokens=40)
        text = next(half)
        del session
        assert half.text() == wanted('dog') and half.text().startswith(text)
        del half
        assert frees.count('bitnet_ctx_free') == 1
        del model
        assert stream.text() == wanted('dog')                       # its model lives on
        assert frees.count('bitnet_model_free') == 0
        del stream
        assert frees.count('bitnet_model_free') == 1 and frees.count('bitnet_ctx_free') == 2, frees
    finally:
        for name in names:
            setattr(lib, name, originals[name])
    model = Model(PATH)
    streams = [model.generate(STORY) for _ in range(3)]
    next(streams[0])
    model.close()
    for stream in streams:
        refused(ClosedError, '', next, stream)
    del streams, stream
    gc.collect()


def collected():
    """A text in a circle of references: the collector may close its session first."""
    with Model(PATH) as model:
        for _ in range(3):
            circle = [model.generate(STORY)]
            circle.append(circle)
            next(circle[0])
            del circle
            gc.collect()
            assert model.generate(DOG, max_tokens=40).text() == wanted('dog')


# ---- threads, and what interrupts ----

def in_thread(function):
    """Runs it in a thread; what it returns or raises comes from the function that this returns."""
    got = []

    def run():
        try:
            got.append(function())
        except BaseException as e:
            got.append(e)
    thread = threading.Thread(target=run)
    thread.start()

    def result():
        thread.join()
        if isinstance(got[0], BaseException):
            raise got[0]
        return got[0]
    return result


def threads():
    """Threads share a model, and write what they would alone."""
    with Model(PATH, threads=1) as model:
        def write(prompt, name):
            return model.generate(prompt, max_tokens=40).text() == wanted(name)
        results = [in_thread(lambda: [write(DOG, 'dog'), model.chat('Hello!').text() == wanted('chat')])
                   for _ in range(6)]
        assert all(result() == [True, True] for result in results)
        assert 1 <= len(model._idle[False]) <= 6


class Watched:
    """A function of the library while it is called: begun, and what it has returned."""

    def __init__(self, name):
        self.begun, self.results = threading.Event(), []
        self.name, self.function = name, getattr(_library.lib, name)

    def __call__(self, *arguments):
        self.begun.set()
        self.results.append(self.function(*arguments))
        return self.results[-1]

    def __enter__(self):
        setattr(_library.lib, self.name, self)
        return self

    def __exit__(self, *_):
        setattr(_library.lib, self.name, self.function)


def computes_alone():
    """Another thread of Python runs while the library computes, here in one call of some seconds on a
    thread that is not the main one: it ends that call."""
    with Model(PATH, context=16384) as model, Watched('bitnet_embed') as call:
        result = in_thread(lambda: model.embed(SOME, pooling='mean'))
        call.begun.wait()
        time.sleep(0.1)
        model.close()
        assert not call.results, 'the call had ended before this thread came on'
        refused(ClosedError, 'closed', result)
        assert call.results == [-9]            # cancelled


def closed_meanwhile():
    """By another thread: a model and a session give a ClosedError, a stream just ends."""
    for what in 'model', 'session', 'stream':
        model = Model(PATH, context=16384)
        session = model.session()
        begun = threading.Event()
        stream = session.generate(LONG, max_tokens=1, progress=lambda *_: begun.set())
        result = in_thread(stream.text)
        begun.wait()
        {'model': model, 'session': session, 'stream': stream}[what].close()
        if what == 'stream':
            assert result() == '' and stream.stats.reason == 'abort'
            assert session.generate(DOG, max_tokens=40).text() == wanted('dog')
        else:
            refused(ClosedError, 'closed', result)
            refused(ClosedError, 'closed', session.generate, DOG)


def closed_afterwards():
    """A text that has ended, while its session writes another one, which goes on."""
    lib = _library.lib
    with Model(PATH) as model:
        first = model.generate(DOG, max_tokens=3)
        first.text()
        second, passes = model.generate(DOG, max_tokens=40), lib.bitnet_gen_next
        assert second._session is first._session

        def meanwhile(*arguments):
            first.close()
            return passes(*arguments)
        lib.bitnet_gen_next = meanwhile
        try:
            assert second.text() == wanted('dog')
        finally:
            lib.bitnet_gen_next = passes


def closed_in_between():
    """By another thread between two passes: who reads it then finds its end."""
    lib, results = _library.lib, []
    with Model(PATH) as model:
        stream, end = model.generate(STORY), lib.bitnet_gen_end
        next(stream)
        met, enter = threading.Event(), stream._session._handle.enter

        def entered(*arguments):
            try:
                return enter(*arguments)
            except BusyError:
                met.set()
                raise

        def ending(gen):
            stream._session._handle.enter = entered
            results.append(in_thread(lambda: list(stream)))
            met.wait(60)
            return end(gen)
        lib.bitnet_gen_end = ending
        try:
            stream.close()
        finally:
            lib.bitnet_gen_end = end
        assert results.pop()() == [] and met.is_set() and stream.stats.reason == 'abort'


def handed_on():
    """A session goes from text to text, whoever ends one and how, and no text notices."""
    with Model(PATH, threads=1) as model:
        ended = []

        def write(number):
            for i in range(number, number + 60):
                stream = model.generate(DOG, max_tokens=40)
                if i % 5 == 0:                 # in a circle
                    circle = [stream]
                    circle.append(circle)
                    next(stream)
                    stream = circle = None
                elif i % 5 == 1:
                    next(stream)
                    stream.close()
                elif i % 5 == 2:
                    closes = threading.Thread(target=stream.close)
                    closes.start()
                    assert wanted('dog').startswith(stream.text())
                    closes.join()
                else:
                    assert stream.text() == wanted('dog')
                    ended.append(stream)
                    ended.pop(0).close()       # perhaps that of another thread
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for result in [in_thread(lambda n=n: write(n)) for n in range(4)]:
                result()
        finally:
            sys.setswitchinterval(interval)


def interrupted():
    """Ctrl-C: in a long prompt, behind its first chunk and not behind all of them; in a load; and while a
    text is written. What a session held, it still holds."""
    if os.name == 'nt':
        raise Skip('no signals')
    signal.signal(signal.SIGINT, signal.default_int_handler)         # a shell's job behind & ignores it
    with Model(PATH, context=16384) as model, model.session() as session:
        session.generate(DOG, max_tokens=40).text()
        held = session.tokens
        seen, sent = [], []
        begun = threading.Event()

        def interrupt():
            begun.wait()
            time.sleep(0.05)                   # in the middle of a pass, not in front of it
            sent.append(len(seen))
            os.kill(os.getpid(), signal.SIGINT)

        def progress(done, total):
            seen.append((done, total))
            if len(seen) == 3:
                begun.set()
        result = in_thread(interrupt)
        try:
            session.chat(LONG, progress=progress).text()
            assert False, 'not interrupted'
        except KeyboardInterrupt:
            pass
        result()
        assert len(seen) <= sent[0] + 1, (len(seen), sent)
        assert len(session.tokens) >= len(held) - 1 and session.tokens == held[:len(session.tokens)]
        text = session.generate(DOG, max_tokens=40)
        assert text.text() == wanted('dog')

    with Model(PATH, context=16384) as model, Watched('bitnet_embed') as call:
        def interrupt_call():
            call.begun.wait()
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)
        result = in_thread(interrupt_call)
        try:
            model.embed(SOME, pooling='mean')
            assert False, 'not interrupted'
        except KeyboardInterrupt:
            assert call.results == [-9]        # cancelled, not run to its end
        result()

    class Event(threading.Event):
        """Ctrl-C comes while the main thread looks whether the call has ended, which it has not."""
        looked = 0

        def is_set(self):
            if threading.current_thread() is threading.main_thread():
                Event.looked += 1
                if Event.looked == 2:
                    raise KeyboardInterrupt
            return super().is_set()
    with Model(PATH, context=16384) as model, Watched('bitnet_embed') as call:
        before, _library.threading.Event = threading.Event, Event
        try:
            model.embed(SOME, pooling='mean')
            assert False, 'not interrupted'
        except KeyboardInterrupt:
            assert call.results == [-9]
        finally:
            _library.threading.Event = before

    class Slow:
        """A file from which Ctrl-C comes while it is read."""
        def __init__(self):
            self.file, self.reads = open(PATH, 'rb'), 0
            self.seek = self.file.seek

        def read(self, size):
            self.reads += 1
            if self.reads == 20:
                os.kill(os.getpid(), signal.SIGINT)
            if self.reads >= 20:
                time.sleep(0.1)
            return self.file.read(size)
    slow = Slow()
    try:
        Model(slow)
        assert False, 'not interrupted'
    except KeyboardInterrupt:
        pass
    finally:
        slow.file.close()
    whole = Slow()
    whole.reads = -10 ** 6
    Model(whole).close()
    whole.file.close()
    assert slow.reads < whole.reads + 10 ** 6, (slow.reads, whole.reads)

    def alarm(*_):
        raise TimeoutError('alarm')
    before = signal.signal(signal.SIGALRM, alarm)
    try:
        with Model(PATH, context=16384) as model:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            model.generate(LONG).text()
            assert False, 'not interrupted'
    except TimeoutError:
        pass
    finally:
        signal.signal(signal.SIGALRM, before)


def forked():
    """The child has the model, and a thread for calls of its own."""
    if not hasattr(os, 'fork'):
        raise Skip('no fork')
    with Model(PATH) as model:
        assert model.generate(DOG, max_tokens=40).text() == wanted('dog')
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')    # Python warns of threads and forks
            child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(model.generate(DOG, max_tokens=40).text() != wanted('dog'))
        assert os.waitpid(child, 0)[1] == 0
        assert model.generate(DOG, max_tokens=40).text() == wanted('dog')


def command():
    """python -m bitnet_h."""
    def run(*arguments, lines='Hello!\n'):
        return subprocess.run([sys.executable, '-m', 'bitnet_h', *arguments], input=lines,
                              capture_output=True, text=True)
    run_it = run(PATH)
    assert run_it.returncode == 0 and wanted('chat') in run_it.stdout and not run_it.stderr, run_it
    empty = run(PATH, lines='\n \nHello!\n')
    assert empty.stdout == '> > ' + run_it.stdout, empty
    full = run(PATH, lines='Tell me a story.\n' * 10 + 'Hello!\n')
    assert 'the chat begins anew)\n> Once' in full.stdout and not full.stderr, full
    for encoding in 'ascii', 'utf-8', 'utf-8:surrogateescape':       # which have no such character
        latin = subprocess.run([sys.executable, '-m', 'bitnet_h', PATH], input=b'Gr\xfc\xdfe!\n',
                               capture_output=True, env=dict(os.environ, PYTHONIOENCODING=encoding))
        assert latin.returncode == 0 and len(latin.stdout) > 10 and not latin.stderr, (encoding, latin)
    for option in '-h', '--help':
        helped = run(option)
        assert helped.returncode == 0 and 'MODEL.gguf' in helped.stdout and not helped.stderr, helped
    wrong = run('no-such-file')
    assert wrong.returncode == 1 and 'no-such-file' in wrong.stderr and 'Traceback' not in wrong.stderr
    if os.path.exists('/dev/full'):
        with open('/dev/full', 'w') as full:
            lost = subprocess.run([sys.executable, '-m', 'bitnet_h', PATH], input=b'Hello!\n', stdout=full,
                                  stderr=subprocess.PIPE)
        assert lost.returncode == 1 and lost.stderr.count(b'\n') == 1 and b'No space' in lost.stderr, lost
    stopped = subprocess.run([sys.executable, '-c', """
import bitnet_h, runpy
def load(_):
    raise KeyboardInterrupt
bitnet_h.Model = load
runpy.run_module('bitnet_h', run_name='__main__')
""", PATH], capture_output=True, text=True)    # Ctrl-C while it loads
    assert (stopped.returncode, stopped.stderr) == (130, ''), stopped


def documented():
    """The examples of its README, one after the other as they are written; tiny.gguf is no model of
    embeddings."""
    text = importlib.metadata.metadata('bitnet-h').get_payload()
    examples = re.findall('```python\n(.*?)```', text, re.S)
    assert len(examples) == 7, len(examples)
    here, out, names = os.getcwd(), io.StringIO(), {}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        os.chdir(folder)
        try:
            for name in 'model.gguf', 'bitnet-embedding.gguf':
                shutil.copy(PATH, name)
            for example in examples:
                exec(example.replace("'another']", "'another'], pooling='mean'"), names)
        finally:
            os.chdir(here)
    assert wanted('story')[:200] in out.getvalue() and 'no-such-file.gguf' in out.getvalue(), out.getvalue()
    assert len(names['vectors']) == 2 and len(names['messages']) == 3, names


cases.run('python', [
    same_text, ends, characters, forms, conversation, refused_message, going_on, replies, without_thinking,
    batch, vectors, about, errors, numbers, kinds, freed, collected, threads, computes_alone,
    closed_meanwhile, closed_afterwards, closed_in_between, handed_on, interrupted, forked, command,
    documented])
