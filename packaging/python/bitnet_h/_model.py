"""Models, sessions and the texts that they write. README.md shows how they are used."""
import collections
import contextlib
import ctypes as C
import importlib
import io
import json
import math
import operator
import os
import random
import re
import sys
import threading
import weakref
from typing import (TYPE_CHECKING, Any, BinaryIO, Callable, Deque, Dict, Iterable, Iterator, List, Mapping,
                    NamedTuple, Optional, Sequence, Set, Tuple, TypedDict, Union)

from . import _declarations as D
from ._library import (ArgumentError, BitnetError, BusyError, CancelledError, ClosedError, Flag, call,
                       counted, interruptible, lib, name, string, text)

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from typing import Unpack
    else:
        from typing_extensions import Unpack

Message = Mapping[str, Any]
Progress = Callable[[int, int], object]
KV_TYPES = {'f16': D.BITNET_KV_F16, 'f32': D.BITNET_KV_F32, 'i8': D.BITNET_KV_I8}
PACKINGS = {'128': D.BITNET_I2S_128, '64': D.BITNET_I2S_64, '4row': D.BITNET_I2S_4ROW}
POOLINGS = {'mean': D.BITNET_POOLING_MEAN, 'first': D.BITNET_POOLING_FIRST,
            'last': D.BITNET_POOLING_LAST}
REASONS = {D.BITNET_STOP_END: 'end', D.BITNET_STOP_LENGTH: 'length', D.BITNET_STOP_STRING: 'stop',
           D.BITNET_STOP_MASK: 'mask'}
PARTS = {D.BITNET_REPLY_TEXT: 'text', D.BITNET_REPLY_THINKING: 'thinking',
         D.BITNET_REPLY_TOOL_CALL: 'tool_call'}
MOST, MOST_LOOKUP = (1 << 31) - 1, 8
MOST_CONTEXT, MOST_THREADS, MOST_PARALLEL = 1 << 20, 256, 4096
EMBED_CONTEXT, EMBED_TEXTS, KV_PAGE = 2048, 16, 64
SAMPLING = {'temperature': (0.0, 0.0, math.inf), 'top_p': (0.95, 0.0, 1.0), 'min_p': (0.05, 0.0, 1.0),
            'repeat_penalty': (1.0, 0.0, math.inf), 'frequency_penalty': (0.0, -math.inf, math.inf),
            'presence_penalty': (0.0, -math.inf, math.inf)}      # the default, the least, the most


# ---- options and results ----

class GenerateOptions(TypedDict, total=False):
    """How a text is written. Without any, it is greedy, and ends where the model ends it."""
    max_tokens: Optional[int]
    """1 or more. Default: until the context is full."""
    temperature: float
    """0, the default, is greedy: always the most likely token."""
    top_k: int
    """Only the K most likely tokens; 0 or -1: all. Default: 40. Like top_p and min_p without effect when
    greedy."""
    top_p: float
    """Only the most likely tokens up to this sum of probabilities; 1: all. Default: 0.95."""
    min_p: float
    """No token under this share of the best one's probability. Default: 0.05."""
    repeat_penalty: float
    """Over 1: recent tokens become less likely. Default: 1."""
    frequency_penalty: float
    """Subtracted from a token's logit for each time that it is among the recent ones. Default: 0."""
    presence_penalty: float
    """Subtracted once if it is there. Default: 0."""
    logit_bias: Mapping[int, float]
    """Added to the logits of tokens, by their numbers; -inf forbids a token."""
    seed: Optional[int]
    """The same seed gives the same text. Default: a random one; see Stats."""
    stop: Union[str, Sequence[str]]
    """The text ends before the first of these."""
    grammar: Optional[str]
    """The text keeps to this grammar, in llama.cpp's GBNF."""
    json_schema: Union[str, bool, Mapping[str, Any], None]
    """The text is JSON that this schema allows; {}: any JSON."""
    lookup: int
    """Tokens to draft from earlier places of the text, 0 to 8: the same text, sooner where it repeats
    names or code. Default: 0."""
    progress: Optional[Progress]
    """Called with the tokens of the prompt read so far, and all of them."""


class ChatOptions(GenerateOptions, total=False):
    """How a reply is written."""
    thinking: Optional[bool]
    """False: without thinking, by models that think; True: with it, by those that do not by default."""
    effort: Optional[str]
    """How much a model is to think whose template says so: minimal, low, medium, high, xhigh, max."""
    earlier_thinking: Optional[bool]
    """Does thinking stay in the replies of earlier turns? Default: as the template has it."""
    tools: Sequence[Mapping[str, Any]]
    """Functions that the model may call, as in OpenAI's API."""


class ChatTemplate(NamedTuple):
    """What the model's chats are like."""
    name: str
    thinking: bool
    """The option `thinking` can keep the model from thinking."""
    efforts: List[str]
    """What the option `effort` chooses from, the default first."""


class Info(NamedTuple):
    """What a model is."""
    arch: str
    layers: int
    vocabulary: int
    context: int
    """Tokens of prompt and text together, in a session."""
    context_trained: int
    parameters: int
    file_bytes: int
    dims: int
    """Elements of a vector of `embed`."""
    has_head: bool
    """False: it only makes embeddings, and `generate` and `chat` fail."""
    pooling: Optional[str]
    chat: Optional[ChatTemplate]
    """None: it has no chat template that is known, and `chat` fails."""
    kernels: str
    layout: str


class Stats(NamedTuple):
    """What has been done for a text."""
    reason: Optional[str]
    """Why it has ended: 'end', the model ended it; 'length', max_tokens or a full context; 'stop', a
    stop string; 'mask', the grammar allowed nothing; 'abort', by close() or an exception; None: it has
    not."""
    prompt_tokens: int
    reused_tokens: int
    """Of the prompt: those that the session already held."""
    tokens: int
    seed: int
    prompt_seconds: float
    seconds: float
    """Of writing."""


class Part(NamedTuple):
    """A piece of a reply. kind: 'text', 'thinking' or 'tool_call'."""
    kind: str
    text: str


# ---- what the library has created ----

class Unique:
    """It has memory of the library, which a copy would share or miss."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f'a {type(self).__name__} cannot be copied, nor pickled: load the model again '
                        'where it is needed, as in another process')


class Handle:
    """A pointer that is freed by close(), or when nothing refers to it any more; if a thread is using it
    then, by that thread, when it is done. alone: one thread at a time."""

    def __init__(self, pointer: Any, free: Callable[[Any], object], what: str, keep: Any = None,
                 alone: bool = False) -> None:
        self._pointer, self._free, self._what, self._keep, self._alone = pointer, free, what, keep, alone
        self._lock, self._users, self.closed = threading.Lock(), 0, False

    def enter(self, over: Callable[[], bool] = bool) -> Any:
        """over: has what wants it ended? It is asked when no other thread has it."""
        with self._lock:
            if self.closed:
                raise ClosedError(f'the {self._what} has been closed')
            if self._alone and self._users or over():
                raise BusyError(f'another thread is using the {self._what}')
            self._users += 1
        return self._pointer

    @contextlib.contextmanager
    def unless(self, over: Callable[[], bool]) -> Iterator[Any]:
        pointer = self.enter(over)
        try:
            yield pointer
        finally:
            self.__exit__()

    def __enter__(self) -> Any:
        return self.enter()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
        self._free_unused()

    def close(self) -> None:
        self.closed = True
        self._free_unused()

    __del__ = close

    def _free_unused(self) -> None:
        with self._lock:
            pointer = None
            if self.closed and not self._users:
                pointer, self._pointer = self._pointer, None
        if pointer:
            self._free(pointer)


class Grammar:
    """A compiled grammar. `like` is one of the same model, whose table of the vocabulary it uses."""

    def __init__(self, model: Any, compile: Any, source: bytes, around: bytes,
                 like: Optional['Grammar']) -> None:
        self.pointer, self._like = C.POINTER(D.bitnet_grammar)(), like
        params = D.bitnet_grammar_params()
        if like:
            params.like = like.pointer
        if around:
            params.around = text(around)
        call(compile, model, source, len(source), C.byref(params), C.byref(self.pointer))

    def __del__(self) -> None:
        lib.bitnet_grammar_free(self.pointer)


class Matcher:
    """Where one text is in its grammar."""

    def __init__(self, grammar: Grammar) -> None:
        self.pointer, self._grammar = C.POINTER(D.bitnet_matcher)(), grammar
        call(lib.bitnet_matcher_create, grammar.pointer, None, C.byref(self.pointer))

    def __del__(self) -> None:
        lib.bitnet_matcher_free(self.pointer)


# ---- models ----

class Model(Unique):
    """A model, which any number of threads may share.

    source: the path of a GGUF file, its bytes, or a file that is open for reading and can seek.
    threads: of each session; default, and 0: as many as the process may use.
    context: tokens of prompt and text together; default: 4096, or what it was trained for if less.
    kv_type: how keys and values are kept. 'i8' takes half the memory of 'f16'.
    progress: called while it loads, with the bytes so far and in all.
    copy: the file is read, not mapped, so that it may change. in_place: weights stay where the file is
    mapped: less memory. packing: of I2_S weights, '128', '64' or '4row'."""

    def __init__(self, source: Union[str, 'os.PathLike[str]', bytes, bytearray, memoryview, BinaryIO], *,
                 threads: Optional[int] = None, context: Optional[int] = None, kv_type: str = 'f16',
                 progress: Optional[Progress] = None, copy: bool = False, in_place: bool = False,
                 packing: str = '128') -> None:
        self._threads = 0 if threads is None else _number('threads', threads, 0, MOST_THREADS)
        self._context = 0 if context is None else _number('context', context, 1, MOST_CONTEXT)
        self._kv_type = _one_of('kv_type', kv_type, KV_TYPES)
        params = D.bitnet_model_params()
        params.copy, params.in_place = copy, in_place
        params.i2s_packing = _one_of('packing', packing, PACKINGS)
        self._handle = _load(source, params, progress)
        self._lock = threading.Lock()
        self._sessions: 'weakref.WeakSet[Session]' = weakref.WeakSet()
        self._idle: Dict[bool, List[Session]] = {False: [], True: []}        # by for_vectors
        self._grammar: Optional[Grammar] = None
        info = D.bitnet_model_info()
        with self._handle as pointer:
            lib.bitnet_model_get_info(pointer, C.byref(info))
            template = lib.bitnet_model_chat_template(pointer)
            self._template = template.contents if template else None
            self._info = info
            capacity = self._context or min(filter(None, (info.ctx_train, 4096)))
            self.info = Info(
                name(info.arch), info.n_layers, info.n_vocab, capacity, info.ctx_train, info.n_params,
                info.file_bytes, info.dim, bool(info.has_head),
                next((each for each, number in POOLINGS.items() if number == info.pooling), None),
                self._chat_template(), name(info.kernels_name), name(info.layout))

    def _chat_template(self) -> Optional[ChatTemplate]:
        template = self._template
        if template is None:
            return None
        efforts = []
        while template.efforts and template.efforts[len(efforts)].name:
            efforts.append(name(template.efforts[len(efforts)].name))
        return ChatTemplate(name(template.name), bool(template.no_think.data), efforts)

    def close(self) -> None:
        """Ends what is being written, also by other threads, and frees the memory."""
        self._handle.close()
        with self._lock:
            sessions = list(self._sessions)
            self._idle, self._grammar = {False: [], True: []}, None
        for session in sessions:
            session.close()

    def __enter__(self) -> 'Model':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def metadata(self) -> Dict[str, str]:
        """The file's metadata as texts, without the arrays."""
        found: Dict[str, str] = {}
        with self._handle as pointer:
            while True:
                key, value = C.create_string_buffer(300), C.create_string_buffer(1 << 16)
                if lib.bitnet_model_meta_key(pointer, len(found), key, len(key)) < 0:
                    break
                size = lib.bitnet_model_get_meta(pointer, key, value, len(value))
                if size >= len(value):
                    value = C.create_string_buffer(size + 1)
                    lib.bitnet_model_get_meta(pointer, key, value, len(value))
                found[key.value.decode(errors='replace')] = (
                    '' if size < 0 else value.raw[:size].decode(errors='replace'))
        return {name: value for name, value in found.items() if value}

    def tokenize(self, text: str, *, bos: bool = False, special: bool = False) -> List[int]:
        """bos: put BOS first. special: names of special tokens in the text become those tokens."""
        data = _utf8('text', text)
        flags = bos * D.BITNET_ADD_BOS | special * D.BITNET_PARSE_SPECIAL
        with self._handle as pointer:
            return list(counted(lib.bitnet_tokenize, D.bitnet_token, pointer, data, len(data), flags))

    def detokenize(self, tokens: Sequence[int]) -> str:
        array = self._token_array(tokens)
        with self._handle as pointer:
            data = counted(lib.bitnet_detokenize, C.c_char, pointer, array, len(array))
        return bytes(data).decode(errors='replace')

    def session(self) -> 'Session':
        """A conversation, or a text, with memory of its own."""
        return Session(self)

    def generate(self, prompt: Union[str, Sequence[int]],
                 **options: 'Unpack[GenerateOptions]') -> 'Stream':
        """Continues a text, or tokens."""
        if prompt is None:                     # the session would go on with what somebody else wrote
            raise ArgumentError('there is no prompt')
        return self._pooled(False).generate(prompt, **options)

    def chat(self, messages: Union[str, Sequence[Message]],
             **options: 'Unpack[ChatOptions]') -> 'Stream':
        """The reply to messages, in the model's chat template; a text is a user's message. What an
        earlier chat has left and this one begins with is not read again."""
        if isinstance(messages, str):
            messages = [{'role': 'user', 'content': messages}]
        return self._pooled(False).chat(messages, **options)

    def batch(self, prompts: Iterable[Union[str, Sequence[Message]]], *, parallel: int = 8,
              **options: 'Unpack[ChatOptions]') -> List['Stream']:
        """Texts of many prompts, each of which is a text to continue or a list of messages, in their
        order and complete: stream.text(). `parallel` of them are written at a time, in the same passes
        over the weights; each is the text that it would be alone."""
        is_one = isinstance(prompts, (str, bytes, Mapping))     # whose letters or keys would be prompts
        prompts = [] if is_one else list(prompts)
        if is_one or any(isinstance(prompt, Mapping) for prompt in prompts):
            raise ArgumentError('prompts: a list of texts, or of lists of messages, is needed')
        if not prompts:
            return []
        if any(prompt is None for prompt in prompts):
            raise ArgumentError('there is no prompt')
        parallel = min(_number('parallel', parallel, 1, math.inf), len(prompts), MOST_PARALLEL)
        streams: List[Stream] = []
        known = _checked(options, ChatOptions)
        with Session(self, n_seqs=parallel) as session:
            free, writing = list(range(session._n_seqs)), []
            while writing or len(streams) < len(prompts):
                while free and len(streams) < len(prompts):
                    try:
                        stream = session._begin(prompts[len(streams)], dict(known), free.pop())
                    except BitnetError as e:
                        raise type(e)(f'prompt {len(streams)}: {e}') from None
                    streams.append(stream)
                    writing.append(stream)
                _pass(session, writing)
                free += [stream._seq for stream in writing if stream._ended]
                writing = [stream for stream in writing if not stream._ended]
        return streams

    def embed(self, texts: Union[str, Sequence[str]], *, query: Optional[str] = None,
              pooling: Optional[str] = None, raw: bool = False, cut: bool = False) -> Any:
        """The vector of a text, or those of texts in their order: an array of numpy if that is installed,
        lists if not.

        query: the texts are queries for this task: each becomes "Instruct: TASK\\nQuery: TEXT". pooling:
        'mean', 'first' or 'last'; default: as the file says. raw: the vectors as they are, else they have
        the length 1. cut: what is over the context is cut off, else it is a ContextFullError."""
        one = isinstance(texts, str)
        wanted = [texts] if isinstance(texts, str) else list(texts)
        if query is not None:
            wanted = [f'Instruct: {query}\nQuery: {each}' for each in wanted]
        params = D.bitnet_embed_params()
        params.pooling = _one_of('pooling', pooling, POOLINGS) if pooling else D.BITNET_POOLING_MODEL
        params.raw, params.cut = raw, cut
        inputs = (D.bitnet_embed_input * len(wanted))()
        for i, each in enumerate(wanted):
            inputs[i].text = text(_utf8('texts', each))
        vectors = (C.c_float * self.info.dims * len(wanted))()
        if wanted:
            session = self._pooled(True)
            out = C.cast(vectors, C.POINTER(C.c_float))
            session._interruptible(lambda ctx: call(lib.bitnet_embed, ctx, inputs, len(wanted),
                                                    C.byref(params), out))
            self._release(session)
        try:
            numpy: Any = importlib.import_module('numpy')
            rows: Any = numpy.frombuffer(vectors, dtype=numpy.float32).reshape(len(wanted), self.info.dims)
        except ImportError:
            rows = [list(row) for row in vectors]
        return rows[0] if one else rows

    def _token_array(self, tokens: Sequence[int]) -> Any:
        last = self.info.vocabulary - 1
        return (D.bitnet_token * len(tokens))(*(_number('a token', each, 0, last) for each in tokens))

    # Sessions that nobody has any more, for what comes next.
    def _pooled(self, for_vectors: bool) -> 'Session':
        while True:
            try:
                session = self._idle[for_vectors].pop()
            except IndexError:
                return Session(self, for_vectors=for_vectors, pooled=True)
            if not session._handle.closed:     # by the collector, which ends what a circle refers to
                session._model = self
                return session

    def _release(self, session: 'Session') -> None:
        session._model = None                  # or they would keep each other
        self._idle[session._for_vectors].append(session)

    def _compile(self, options: Mapping[str, Any], thinks: bool) -> Optional[Matcher]:
        grammar, schema = options.get('grammar'), options.get('json_schema')
        if grammar is not None and schema is not None:
            raise ArgumentError('grammar and json_schema are both given; one is possible')
        if grammar is None and schema is None:
            return None
        compile = lib.bitnet_grammar_gbnf
        if grammar is None:
            compile = lib.bitnet_grammar_json_schema
            grammar = schema if isinstance(schema, str) else json.dumps(schema)
        around = D.BITNET_GRAMMAR_THOUGHT + 'text ::= thought "\\n\\n" root\n' if thinks else ''
        with self._handle as pointer:
            with self._lock:                   # the first has the table of the vocabulary for all others
                like = self._grammar = self._grammar or Grammar(
                    pointer, lib.bitnet_grammar_gbnf, b'root ::= [a]*', b'', None)
            return Matcher(Grammar(pointer, compile, _utf8('grammar', grammar), around.encode(), like))


def _load(source: Any, params: D.bitnet_model_params, progress: Optional[Progress]) -> Handle:
    """The handle of a model."""
    flag, pointer = Flag(), C.POINTER(D.bitnet_model)()
    failures: List[BaseException] = []
    keep, path = None, ''

    def report(_ud: Any, done: int, total: int) -> int:
        try:
            if progress:
                progress(done, total)
        except BaseException as e:
            failures.append(e)
        return int(bool(failures) or flag.is_set())

    def read(_ud: Any, offset: int, to: int, size: int) -> int:
        try:
            source.seek(offset)
            done = 0
            while done < size:
                data = source.read(size - done)
                if not data:
                    return D.BITNET_ERR_TRUNCATED
                if not isinstance(data, bytes) or len(data) > size - done:
                    raise TypeError(f'source: its read({size - done}) gave something else than so many bytes')
                C.memmove(to + done, data, len(data))
                done += len(data)
            return D.BITNET_OK
        except BaseException as e:
            failures.append(e)
            return D.BITNET_ERR_IO

    params.progress_fn = D.bitnet_progress_fn(report)
    end = C.byref(params), C.byref(pointer)
    if isinstance(source, (bytes, bytearray, memoryview)):
        keep = bytes(source)
        arguments: Tuple[Any, ...] = (lib.bitnet_model_load_memory, keep, len(keep)) + end
    elif isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        name = path.encode() if os.name == 'nt' else os.fsencode(path)
        if b'\0' in name:
            raise ArgumentError('the path has a NUL')
        arguments = (lib.bitnet_model_load_file, name) + end
    elif isinstance(source, io.TextIOBase) or not hasattr(source, 'seek'):
        raise TypeError("source: a path, bytes or a file open with 'rb' is needed, not " +
                        type(source).__name__)
    else:
        end_at = source.seek(0, os.SEEK_END)   # of an mmap it returns nothing
        file = D.bitnet_io(size=source.tell() if end_at is None else end_at, read_fn=D.bitnet_read_fn(read))
        arguments = (lib.bitnet_model_load_io, C.byref(file)) + end
    try:
        interruptible(lambda: call(*arguments), flag)
    except BaseException as e:
        lib.bitnet_model_free(pointer)         # it may have been complete when Ctrl-C came
        if failures:
            raise failures.pop()
        if isinstance(e, BitnetError) and path and path not in str(e):
            raise type(e)(f'{path}: {e}') from None
        raise
    return Handle(pointer, lib.bitnet_model_free, 'model', keep)


# ---- sessions ----

class Turn(NamedTuple):
    """A message that a session holds. contents: of a reply as it was written, and without its thinking
    and calls; end: how many tokens the session held behind it."""
    role: str
    contents: Set[str]
    end: int = 0


class Session(Unique):
    """A conversation, or a text, which keeps what it has computed: what a prompt or a list of messages
    has in common with it is not read again. It writes one text at a time; sessions of one model may be
    used by different threads at the same time."""

    def __init__(self, model: Model, *, n_seqs: int = 1, for_vectors: bool = False,
                 pooled: bool = False) -> None:
        self._model: Any = model
        self._n_seqs, self._for_vectors, self._pooled = n_seqs, for_vectors, pooled
        self._flag, self._streams = Flag(), 0
        self._held: Optional[List[Turn]] = []  # the chat that it holds; None: not known
        self._begun: Tuple[Any, ...] = ()      # what stands in front of it: tools, effort
        params = D.bitnet_ctx_params()
        params.n_ctx, params.n_threads, params.kv_type = model._context, model._threads, model._kv_type
        params.n_seqs = n_seqs
        params.hooks.cancel_fn, params.hooks.cancel_ud = Flag.cancel, self._flag.ud
        if for_vectors:                        # texts together take what the longest one may take alone
            params.n_ctx = params.n_ctx or min(filter(None, (model.info.context_trained, EMBED_CONTEXT)))
            params.n_seqs, params.no_head_copy = EMBED_TEXTS, 1
            params.n_kv = max(EMBED_TEXTS * KV_PAGE, params.n_ctx)
        elif model.info.has_head:
            params.n_logits = n_seqs + min(MOST_LOOKUP, model.info.context - 1)      # one may draft
        pointer = C.POINTER(D.bitnet_ctx)()
        with model._handle as m:
            call(lib.bitnet_ctx_create, m, C.byref(params), C.byref(pointer))
            self._handle = Handle(pointer, lib.bitnet_ctx_free, 'session', model._handle, alone=True)
            with model._lock:
                model._sessions.add(self)
        if model._handle.closed:               # meanwhile: close() may have missed this one
            self.close()

    def generate(self, prompt: Union[str, Sequence[int], None] = None,
                 **options: 'Unpack[GenerateOptions]') -> 'Stream':
        """Continues a text, or tokens. None: goes on from where the last text has ended."""
        known = ChatOptions if _is_chat(prompt) else GenerateOptions
        return self._begin(prompt, _checked(options, known))

    def chat(self, messages: Union[str, Sequence[Message]],
             **options: 'Unpack[ChatOptions]') -> 'Stream':
        """The reply to messages, in the model's chat template: the whole conversation, with `message` of
        the streams in it; or a text, which is a user's next message."""
        if isinstance(messages, str):
            messages = [{'role': 'user', 'content': messages}]
            return self._begin(messages, _checked(options, ChatOptions), goes_on=True)
        if not messages:
            raise ArgumentError('there are no messages')
        return self._begin(messages, _checked(options, ChatOptions))

    def save(self) -> bytes:
        """What it holds: the text and what was computed of it. With load() it goes on with the same bits,
        on any machine, without reading it again."""
        def run(ctx: Any) -> bytes:
            out = (C.c_char * lib.bitnet_seq_state_bytes(ctx, 0))()
            call(lib.bitnet_seq_save_memory, ctx, 0, out, len(out))
            return out.raw
        return self._at_rest()._interruptible(run)

    def load(self, state: Union[bytes, bytearray, memoryview]) -> None:
        """Puts a saved session in place of this one. It needs the same model file."""
        if not isinstance(state, (bytes, bytearray, memoryview)):
            raise TypeError(f'state: bytes are needed, not {type(state).__name__}')
        data = bytes(state)

        def run(ctx: Any) -> None:
            call(lib.bitnet_seq_load_memory, ctx, 0, data, len(data))
            self._held = None
        self._at_rest()._interruptible(run)

    def clear(self) -> None:
        """Forgets everything."""
        with self._at_rest()._handle as ctx:
            call(lib.bitnet_seq_rewind, ctx, 0, 0)
            self._held = []

    @property
    def tokens(self) -> List[int]:
        """Those that it holds."""
        with self._handle as ctx:
            return self._tokens(ctx, 0)

    def close(self) -> None:
        """Ends what it writes, also in another thread, and frees its memory."""
        self._handle.closed = True
        self._flag.set()
        self._handle.close()

    def __enter__(self) -> 'Session':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tokens(self, ctx: Any, seq: int) -> List[int]:
        pending = lib.bitnet_seq_pending(ctx, seq)
        return (lib.bitnet_seq_tokens(ctx, seq)[:lib.bitnet_seq_length(ctx, seq)] +
                [pending] * (pending >= 0))

    def _at_rest(self) -> 'Session':
        if self._streams and self._n_seqs == 1:
            raise BusyError('the session is writing another text: read that to its end, or close() it')
        return self

    def _give_back(self) -> None:
        """Called once for each text, behind its end, by the thread that has ended it."""
        if self._pooled and not self._handle.closed:
            self._model._release(self)

    def _interruptible(self, function: Callable[[Any], Any], over: Callable[[], bool] = bool) -> Any:
        """Calls a function with the context. closed and stop are set before the flag, and looked at
        after it is cleared."""
        with self._handle.unless(over) as ctx:
            self._flag.clear()
            if self._handle.closed:
                raise ClosedError('the session has been closed')
            try:
                return interruptible(lambda: function(ctx), self._flag)
            except CancelledError:
                if self._handle.closed:
                    raise ClosedError('the session has been closed') from None
                raise

    def _begin(self, prompt: Any, options: Dict[str, Any], seq: int = 0,
               goes_on: bool = False) -> 'Stream':
        with self._at_rest()._handle as ctx:
            return Stream(self, ctx, prompt, options, seq, goes_on)


def _is_chat(prompt: Any) -> bool:
    return isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], Mapping)


def _one_of(name: str, value: str, known: Mapping[str, int]) -> int:
    if value not in known:
        raise ArgumentError(f'{name}: {value!r} is none of {", ".join(known)}')
    return known[value]


def _number(name: str, value: Any, low: float, high: float, kind: str = 'whole number') -> Any:
    """ctypes takes any number, and keeps its lower bits; the library takes NaN for 0."""
    try:
        number = operator.index(value) if kind == 'whole number' else C.c_float(value).value
    except OverflowError:                      # as of 10 ** 400
        number = math.inf if value > 0 else -math.inf
    except ValueError:                         # Decimal('sNaN')
        number = math.nan
    except TypeError:
        number = value if isinstance(value, float) and value == high == math.inf else None
    if number is None or not low <= number <= high:
        kinds = TypeError if number is None else ArgumentError
        raise kinds(f'{name}: {value!r} is not a {kind} from {low} to {high}')
    return number


def _utf8(name: str, value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f'{name}: a string is needed, not {type(value).__name__}')
    return value.encode()


def _list(value: Any) -> List[Any]:
    """A text, or what is no list, is the only one of its list."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(value)
    return [value] if value or isinstance(value, str) else []


def _checked(options: Mapping[str, Any], known: Any) -> Dict[str, Any]:
    for name in options:
        if name not in known.__annotations__:
            chats = name in ChatOptions.__annotations__
            raise TypeError(f'there is no option {name!r}' + ', but for chats' * chats)
    # what can be read only once is for all texts of a batch
    return {name: list(value) if isinstance(value, Iterator) else value for name, value in options.items()}


def _turns(messages: Sequence[Message]) -> List[Tuple[str, str]]:
    """The role and the content of each message."""
    turns = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f'message {i}: a dict is needed, not {type(message).__name__}')
        unknown = set(message) - {'role', 'content'}
        if unknown:
            raise ArgumentError(f'message {i}: {sorted(unknown)[0]!r} is not known, only role and content')
        turn = message.get('role'), message.get('content')
        if not (isinstance(turn[0], str) and isinstance(turn[1], str)):
            raise ArgumentError(f'message {i}: role and content must be strings')
        turns.append(turn)
    return turns


def _messages(turns: Sequence[Tuple[str, str]]) -> Any:
    array = (D.bitnet_message * len(turns))()
    for message, (role, content) in zip(array, turns):
        message.role, message.content = text(role.encode()), text(content.encode())
    return array


# ---- texts ----

class Stream(Unique):
    """A text that is being written: an iterator of its pieces, which are whole characters. Of a chat's
    reply these are what is meant for the reader; parts() gives all of it. What is not iterated is not
    computed; close(), or dropping it, ends it."""

    def __init__(self, session: Session, ctx: Any, prompt: Any, options: Dict[str, Any], seq: int,
                 goes_on: bool) -> None:
        self._session, self._seq = session, seq
        self._gens: List[Any] = []
        self._ended, self._stopped, self._reported = False, False, False
        self._lock = threading.RLock()         # of _ended, before which the flag may be set
        self._reason: Optional[str] = None
        self._ready: Deque[Part] = collections.deque()
        self._written: List[Part] = []
        self._raw: List[str] = []
        self._calls: Dict[int, str] = {}
        self._piece, self._figures = D.bitnet_piece(), D.bitnet_figures()
        self._progress: Optional[Progress] = options.get('progress')
        self._is_chat = _is_chat(prompt)
        model = session._model
        most, lookup = options.get('max_tokens'), options.get('lookup', 0)
        most = 0 if most is None else min(_number('max_tokens', most, 1, math.inf), MOST)
        params = D.bitnet_generate_params(seq=seq, max_tokens=most,
                                          lookup=_number('lookup', lookup, 0, MOST_LOOKUP))
        stops = [text(_utf8('stop', each)) for each in _list(options.get('stop'))]
        params.n_stop_strings, params.stop_strings = len(stops), (D.bitnet_text * len(stops))(*stops)
        self._call_form = D.BITNET_CALL_JSON
        self._reply = D.bitnet_reply()
        if self._is_chat:
            chat = _chat_params(model, options)
            params.chat = C.pointer(chat)
            with model._handle as m:
                lib.bitnet_reply_begin(C.byref(self._reply), m, C.byref(chat))
            if model._template is not None:
                self._call_form = model._template.call_form
        thinks = self._reply.part == D.BITNET_REPLY_THINKING
        if thinks:
            self._raw.append('<think>\n')
        seed = options.get('seed')
        self._seed: int = (random.getrandbits(32) if seed is None else
                           _number('seed', seed, 0, (1 << 64) - 1))
        self._matcher = model._compile(options, thinks)
        sampler = _sampler(model, options, self._seed, self._matcher)
        params.sampler = C.pointer(sampler)
        self._set_prompt(ctx, params, prompt, options, goes_on)
        gen = C.POINTER(D.bitnet_gen)()
        try:
            call(lib.bitnet_gen_begin, ctx, C.byref(params), C.byref(gen))
        except BaseException:
            session._held = self._before
            raise
        session._streams += 1
        session._held = None
        self._gens.append(gen)
        lib.bitnet_seq_figures(ctx, seq, C.byref(self._figures))

    def _set_prompt(self, ctx: Any, params: Any, prompt: Any, options: Mapping[str, Any],
                    goes_on: bool) -> None:
        """Sets what is to be read behind the tokens that the session keeps. _before is the chat that it
        holds until that is read, _conversation then, in front of the reply."""
        session, model = self._session, self._session._model
        held = session._held
        here = session._tokens(ctx, self._seq)
        self._kept = lib.bitnet_seq_length(ctx, self._seq)
        self._before = held
        self._conversation: Optional[List[Turn]] = None
        if prompt is None:
            return
        known = 0                              # messages of the chat that is held
        if self._is_chat:
            turns, keep = _turns(prompt), len(here) * goes_on
            begun = repr(options.get('tools')), options.get('effort')
            if not goes_on and held and begun == session._begun:
                same = next((i for i, (turn, (role, content)) in enumerate(zip(held, turns))
                             if turn.role != role or content not in turn.contents), len(held))
                known = max((i + 1 for i in range(min(same, len(turns) - 1)) if held[i].end), default=0)
                keep = held[known - 1].end if known else 0
            elif held is not None and goes_on:
                known = len(held)
            new = turns if goes_on else turns[known:]
            if held is not None or not goes_on:
                self._conversation = (held or [])[:known] + [Turn(role, {content}) for role, content in new]
            with model._handle as m:
                flags = D.BITNET_CHAT_OPEN_REPLY | (
                    D.BITNET_CHAT_BEGIN if not keep else D.BITNET_CHAT_ENDED_REPLY
                    if lib.bitnet_token_is_end(m, here[keep - 1]) else D.BITNET_CHAT_CUT_REPLY)
                tokens = here[:keep] + _chat_tokens(m, params.chat, _messages(new), flags)
            if not keep:                       # not before: a message may have been refused
                session._begun = begun
        elif isinstance(prompt, str):
            tokens = model.tokenize(prompt, bos=bool(model._info.add_bos))
        else:                                  # bytes are numbers, but no tokens
            tokens = list(prompt)
            if isinstance(prompt, bytes) or not all(hasattr(token, '__index__') for token in tokens):
                raise ArgumentError('a text, a list of messages or tokens are needed')
        most = min(len(here), max(len(tokens) - 1, 0))
        common = next((i for i in range(most) if here[i] != tokens[i]), most)
        if common < len(here):                 # the token that is pending goes, too
            call(lib.bitnet_seq_rewind, ctx, self._seq, common)
            self._kept = common
            self._before = held[:known] if held and known else None
        rest = tokens[common:]
        if rest:
            params.tokens, params.n_tokens = model._token_array(rest), len(rest)
        else:
            params.text = text(b'')

    # ---- what it gives ----

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            part = self._next()
            if part is None:
                raise StopIteration
            if part.kind == 'text':
                return part.text

    def parts(self) -> Iterator[Part]:
        """All that comes, thinking and tool calls, too."""
        return iter(self._next, None)          # type: ignore[arg-type]

    def text(self) -> str:
        """Reads it to its end. The whole text; of a reply, without thinking and tool calls."""
        for _ in self:
            pass
        return self._all('text')

    __str__ = text

    @property
    def thinking(self) -> str:
        """What the model has thought so far."""
        return self._all('thinking')

    @property
    def tool_calls(self) -> List[Dict[str, Any]]:
        """The calls so far, {'name': ..., 'arguments': {...}}. A call that is not complete, or not as
        the template wants it, has only 'text'."""
        return [_tool_call(found, self._call_form) for found in self._calls.values()]

    @property
    def message(self) -> Dict[str, str]:
        """The assistant's message, for the next call of chat: as the model wrote it, with its thinking and
        calls."""
        return {'role': 'assistant', 'content': ''.join(self._raw)}

    @property
    def stats(self) -> Stats:
        f = self._figures
        return Stats(self._reason, self._kept + f.n_prompt, self._kept, f.n_written, self._seed,
                     f.read_ns / 1e9, f.write_ns / 1e9)

    def close(self) -> None:
        """Ends it, also if another thread is reading it."""
        with self._lock:
            if self._ended:                    # the session may be writing another text by now
                return
            self._stopped = True
            self._session._flag.set()
        try:
            with self._session._handle.unless(lambda: self._ended) as ctx:
                mine = self._end(ctx)
        except ClosedError:
            mine = self._end(None)
        except BusyError:                      # that thread ends it, or has done so
            return
        if mine:
            self._session._give_back()

    def __enter__(self) -> 'Stream':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, '_gens', None):
            self.close()

    # ---- how it is written ----

    def _all(self, kind: str) -> str:
        return ''.join(part.text for part in self._written if part.kind == kind)

    def _next(self) -> Optional[Part]:
        while not self._ready and not self._ended:
            _pass(self._session, [self])
        return self._ready.popleft() if self._ready else None

    def _take(self, ctx: Any) -> bool:
        """Takes what the last pass gave. True: it has ended."""
        piece = self._piece
        lib.bitnet_gen_piece(self._gens[0], C.byref(piece))
        new = string(piece.text)
        self._raw.append(new)
        self._add(new.encode())
        if piece.ended:
            self._reason = REASONS.get(piece.why, 'abort')
            return self._end(ctx)
        lib.bitnet_seq_figures(ctx, self._seq, C.byref(self._figures))
        return False

    def _add(self, data: Optional[bytes]) -> None:
        """Divides a piece into parts; None: nothing more comes."""
        if self._is_chat:
            rest, left = C.POINTER(C.c_char)(), C.c_size_t(0)
            if data is not None:
                rest, left = C.cast(C.c_char_p(data), C.POINTER(C.c_char)), C.c_size_t(len(data))
            kind, part = C.c_int(), D.bitnet_text()
            found, size = C.POINTER(C.c_char)(), C.c_size_t()
            while lib.bitnet_reply_next(C.byref(self._reply), C.byref(rest), C.byref(left), C.byref(kind),
                                        C.byref(found), C.byref(size)):
                part.data, part.size = found, size.value
                self._put(Part(PARTS[kind.value], string(part)))
        elif data:
            self._put(Part('text', data.decode()))

    def _put(self, part: Part) -> None:
        if part.text:
            self._ready.append(part)
            self._written.append(part)
            if part.kind == 'tool_call':
                number = self._reply.n_calls
                self._calls[number] = self._calls.get(number, '') + part.text

    def _end(self, ctx: Any) -> bool:
        """Ends the generation; then the session has to be given back. False: it had ended. ctx None: the
        session is closed, and only the generation keeps its memory."""
        try:
            gen = self._gens.pop()
        except IndexError:
            return False
        session = self._session
        lib.bitnet_gen_piece(gen, C.byref(self._piece))
        if ctx:
            lib.bitnet_seq_figures(ctx, self._seq, C.byref(self._figures))
        lib.bitnet_gen_end(gen)
        held = len(session._tokens(ctx, self._seq)) if ctx and session._n_seqs == 1 else 0
        self._add(None)
        self._reason = self._reason or 'abort'
        with self._lock:
            self._ended = True
        self._matcher = None
        if self._piece.n_prompt and self._piece.n_read == self._piece.n_prompt:
            if self._conversation is not None and held:
                contents = {self.message['content'], self._all('text')}
                session._held = self._conversation + [Turn('assistant', contents, held)]
        else:
            session._held = self._before
        session._streams -= 1
        return True

    def _report(self) -> None:
        piece = self._piece
        if self._progress and not self._reported:
            self._reported = piece.n_read == piece.n_prompt
            self._progress(self._kept + piece.n_read, self._kept + piece.n_prompt)


def _pass(session: Session, streams: List[Stream]) -> None:
    """One pass over the weights for streams of a session, which have then what it gave. If it fails, they
    end; if one of them was closed by another thread, without an error."""
    over: List[Stream] = []                    # those that this pass ends

    def run(ctx: Any) -> None:
        if any(stream._stopped for stream in streams):
            raise CancelledError('the text has been closed')
        gens = [stream._gens[0] for stream in streams]
        call(lib.bitnet_gen_next, (C.POINTER(D.bitnet_gen) * len(gens))(*gens), len(gens))
        over.extend(stream for stream in streams if stream._take(ctx))

    try:
        session._interruptible(run, lambda: any(stream._ended for stream in streams))
        for stream in streams:
            stream._report()
    except BusyError:                          # another thread reads it, or has just ended it
        if not any(stream._stopped or stream._ended for stream in streams):
            raise
    except BaseException as e:
        closed = isinstance(e, CancelledError) and any(stream._stopped for stream in streams)
        for stream in streams:
            stream.close()
        if not closed:
            raise
    finally:
        if over:
            session._give_back()


def _sampler(model: Model, options: Mapping[str, Any], seed: int, matcher: Optional[Matcher]) -> Any:
    sampler = D.bitnet_sampler(rng=seed)
    for name, (default, low, high) in SAMPLING.items():
        setattr(sampler, name, _number(name, options.get(name, default), low, high, 'number'))
    sampler.top_p = max(sampler.top_p, 1e-9)   # 0 would mean all tokens
    sampler.top_k = min(_number('top_k', options.get('top_k', 40), -1, math.inf), MOST)
    bias = options.get('logit_bias') or {}
    if not isinstance(bias, Mapping):
        raise TypeError('logit_bias: a dict of tokens and numbers is needed')
    last = model.info.vocabulary - 1
    sampler.bias = (D.bitnet_logit_bias * len(bias))(
        *((_number('logit_bias', token, 0, last),
           _number('logit_bias', number, -math.inf, math.inf, 'number')) for token, number in bias.items()))
    sampler.n_bias = len(bias)
    if matcher:
        sampler.mask_fn = C.cast(lib.bitnet_matcher_mask, D.bitnet_mask_fn)
        sampler.chosen_fn = C.cast(lib.bitnet_matcher_chosen, D.bitnet_chosen_fn)
        sampler.mask_ud = sampler.chosen_ud = C.cast(matcher.pointer, C.c_void_p)
    return sampler


def _chat_params(model: Model, options: Mapping[str, Any]) -> Any:
    chat, template = D.bitnet_chat_params(), model._template
    thinking, earlier = options.get('thinking'), options.get('earlier_thinking')
    if thinking is not None and not thinking:
        chat.thinking = D.BITNET_THINK_OFF
    elif thinking and template and template.think.data and template.thinking == D.BITNET_THINK_OFF:
        chat.thinking = D.BITNET_THINK_ON
    if earlier is not None:
        chat.earlier_thinking = 1 if earlier else -1
    if options.get('effort') is not None:
        chat.effort = text(_utf8('effort', options['effort']))
    tools = _list(options.get('tools'))
    if not all(map(_is_tool, tools)):
        raise ArgumentError('tools: a list of functions, which have names, is needed')
    if tools:
        lines = [json.dumps(tool if 'function' in tool else {'type': 'function', 'function': tool},
                            ensure_ascii=False) for tool in tools]
        chat.tools = text('\n'.join(lines).encode())
    return chat


def _is_tool(tool: Any) -> bool:
    function = tool.get('function', tool) if isinstance(tool, Mapping) else {}
    return isinstance(function, Mapping) and isinstance(function.get('name'), str)


def _chat_tokens(model: Any, chat: Any, messages: Any, flags: int) -> List[int]:
    def fill(*out: Any) -> int:
        return call(lib.bitnet_chat_tokenize, model, chat, messages, len(messages), flags, *out)
    return list(counted(fill, D.bitnet_token))


def _tool_call(found: str, form: int) -> Dict[str, Any]:
    """Of what stands between <tool_call> and </tool_call>."""
    if form == D.BITNET_CALL_XML:
        function = re.fullmatch(r'\s*<function=([^>]*)>(.*)</function>\s*', found, re.S)
        if not function:
            return {'text': found}
        arguments = {}
        for name, value in re.findall(r'<parameter=([^>]*)>\n?(.*?)\n?</parameter>', function[2], re.S):
            try:
                arguments[name] = json.loads(value)
            except ValueError:                 # the text of a string
                arguments[name] = value
        return {'name': function[1], 'arguments': arguments}
    try:
        value = json.loads(found)
    except ValueError:
        return {'text': found}
    return value if isinstance(value, dict) and 'name' in value else {'text': found}
