"""Tests bitnet_ctypes.py, and by it what bitnet.h promises to such bindings.
    test_ctypes.py LIBRARY HEADER MODEL TEXT LAYOUT
TEXT: a file with what the model writes in 40 tokens; LAYOUT: sizes, offsets and constants as a C
compiler sees them, printed by the program of layout.py. Ends with "N passed, N failed,
N skipped"."""
import ctypes as C
import gc
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases
from bitnet_ctypes import Context, Failure, Generation, Library, Model

path, header, model_path, text_path, layout_path = sys.argv[1:]
PROMPT = b'Once upon a time'
lib = Library(path, header)
with open(text_path, 'rb') as file:
    TEXT = file.read()


def written(context, **params):
    return b''.join(context.write(**params)).strip()


def refused(call, code, word):
    """It fails with that code, and the error's text has the word."""
    try:
        call()
    except Failure as failure:
        assert failure.code == code and word in str(failure), failure
    else:
        assert False, f'not refused: {word}'


def layout():
    """Structs and constants are as the compiler has them, by their own names and all of them."""
    with open(layout_path, encoding='utf-8') as lines:
        theirs = dict(line.split() for line in lines)
    ours = {name: value & 0xffffffff for name, value in lib.header.constants.items()}
    for name, struct in lib.header.structs.items():
        ours[name] = C.sizeof(struct)
        ours.update({f'{name}.{field}': getattr(struct, field).offset
                     for field, _ in struct._fields_ if field != 'reserved'})
    theirs = {name: int(value) & 0xffffffff for name, value in theirs.items()}
    assert len(theirs) > 200 and ours == theirs, set(ours.items()) ^ set(theirs.items())


def versions():
    version = lib.bitnet_version()
    major = C.string_at(version).decode().split('.')[0]
    assert lib.header.names.keys() == lib.header.functions.keys()
    assert all(symbol == f'{name}_v{major}' for name, symbol in lib.header.names.items())


def text():
    assert written(Context(Model(lib, model_path)), text=PROMPT, max_tokens=40) == TEXT


def callbacks():
    """Of a text in one call: hooks with a ud of their own, and one that cancels."""
    model = Model(lib, model_path)
    context = Context(model)
    parts, uds, told = [], set(), []

    def take(ud, part, n, token):
        uds.add(ud)
        parts.append(C.string_at(part, n))
        return 0

    def progress(ud, done, total):
        uds.add(ud)
        return 0

    params = lib.make('bitnet_generate_params', text=PROMPT, max_tokens=40, text_fn=take,
                      text_ud=5, progress_fn=progress, progress_ud=6)
    why = C.c_int(-1)
    lib.call('bitnet_generate', context.handle, C.byref(params), C.byref(why))
    assert b''.join(parts).strip() == TEXT and uds == {5, 6}, (parts, uds)
    assert why.value == lib.BITNET_STOP_LENGTH
    figures = lib.bitnet_figures()
    lib.bitnet_seq_figures(context.handle, 0, C.byref(figures))
    assert (figures.n_written, figures.n_read) == (40, figures.n_prompt)
    cancelled = Context(model, hooks=dict(cancel_fn=lambda ud: told.append(ud) or 1, cancel_ud=7))
    refused(lambda: written(cancelled, text=PROMPT), lib.BITNET_ERR_CANCELLED, 'cancelled')
    assert told[0] == 7


def chat():
    """In the model's template and in one of our own; a stop string, a sampler with a bias."""
    model = Model(lib, model_path)
    hello = dict(role=b'user', content=b'Hello!')
    reply = written(Context(model), messages=[hello], max_tokens=30)
    assert reply.startswith(b'Hello'), reply
    system = dict(role=b'system', content=b'You are friendly.')
    assert written(Context(model), messages=[system, hello], max_tokens=30)
    form = dict(user=dict(prefix=b'User: ', suffix=b'\n'), assistant=dict(suffix=b'\n'),
                reply=b'Bot:', end=b'\n')
    generation = Generation(Context(model), messages=[hello], chat=dict(chat_template=form))
    generation.next()
    flags = lib.BITNET_ADD_BOS if model.info().add_bos else 0
    assert generation.piece().n_prompt == len(model.tokenize(b'User: Hello!\nBot:', flags))
    stop = reply.split()[1]
    short = written(Context(model), messages=[hello], max_tokens=30, stop_strings=[b'\0', stop])
    assert short == reply[:reply.index(stop)].strip(), (short, reply)
    first = model.tokenize(reply)[0]
    sampler = dict(temperature=1.0, rng=3, bias=[lib.bitnet_logit_bias(first, float('-inf'))])
    assert not written(Context(model), messages=[hello], sampler=sampler).startswith(reply[:5])


def nul():
    """A NUL in a text is a character like any other, wherever a text goes in or comes out."""
    model = Model(lib, model_path)
    tokens = model.tokenize(b'a\0b')
    assert model.detokenize(tokens) == b'a\0b' and len(tokens) > len(model.tokenize(b'a'))
    context = Context(model)
    generation = Generation(context, text=b'a\0b', max_tokens=1)
    generation.next()
    read = lib.bitnet_seq_tokens(context.handle, 0)[:lib.bitnet_seq_length(context.handle, 0)]
    begin = model.tokenize(b'', lib.BITNET_ADD_BOS) if model.info().add_bos else []
    assert read == begin + tokens, (read, tokens)
    counts = []
    for content in b'a', b'a\0b', b'a\0b\0':
        generation = Generation(Context(model), messages=[dict(role=b'user', content=content)])
        generation.next()
        counts.append(generation.piece().n_prompt)
    assert counts[0] < counts[1] < counts[2], counts
    value = C.create_string_buffer(9)
    token = lib.bitnet_token_find(model.handle, b'\0', 1)
    size = C.c_size_t()
    name = lib.bitnet_token_text(model.handle, token, C.byref(size))
    assert token >= 0 and C.string_at(name, size.value) == b'\0' and value.raw == bytes(9)


def failures():
    model = Model(lib, model_path)
    refused(lambda: Model(lib, 'no-such-file'), lib.BITNET_ERR_IO, 'no-such-file')
    refused(lambda: Context(model, n_ctx=-1), lib.BITNET_ERR_ARG, 'n_ctx')
    words = dict(lib.bitnet_ctx_params._fields_)['reserved'](0, 1)
    refused(lambda: Context(model, reserved=words), lib.BITNET_ERR_ARG, 'bitnet_ctx_params')
    refused(lambda: Generation(Context(model), lookup=99), lib.BITNET_ERR_ARG, 'lookup')


def freed():
    """In the order that no program in C would take, each lives on while it is needed."""
    model = Model(lib, model_path)
    contexts = [Context(model) for _ in range(3)]
    generations = [Generation(context, text=PROMPT, max_tokens=40) for context in contexts]
    model.free()
    parts = [b'', b'', b'']
    for _ in range(10):
        for i, generation in enumerate(generations):
            generation.next()
            piece = generation.piece().text
            parts[i] += C.string_at(piece.data, piece.size)
    assert all(part and TEXT.startswith(part.strip()) for part in parts), parts
    contexts[0].free()                         # its generation can be asked, and ended
    asked = generations[0].piece()
    assert asked.n_read == asked.n_prompt and not asked.ended
    refused(generations[0].next, lib.BITNET_ERR_ARG, 'freed')
    refused(lambda: written(contexts[1], text=b'The'), lib.BITNET_ERR_BUSY, 'generation')
    contexts[1].free()
    generations[1].free()                      # and with it the context
    contexts[2].free()


def collected():
    """Python chooses the order for a circle of references. What it frees in a callback is in use,
    and freed later."""
    model = Model(lib, model_path)
    for _ in range(4):
        context = Context(model)
        context.circle = [Generation(context, text=PROMPT), context, Context(model)]
    del context
    gc.collect()
    contexts = [Context(model)]

    def drop(ud, part, n, token):
        contexts.clear()                       # the last reference; its call goes on
        return 0

    params = lib.make('bitnet_generate_params', text=PROMPT, max_tokens=5, text_fn=drop)
    lib.call('bitnet_generate', contexts[0].handle, C.byref(params), None)
    assert [name for name, _ in lib.waiting] == ['bitnet_ctx_free']
    model.free()
    assert not lib.waiting


def behind():
    gc.collect()
    assert not lib.waiting, 'something could not be freed'


cases.run('ctypes', [layout, versions, text, callbacks, chat, nul, failures, freed, collected], behind)
