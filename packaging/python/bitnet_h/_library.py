"""The shared library: its functions by their names in bitnet.h, its errors as exceptions, and calls that
Ctrl-C can end. The structs and constants are in _declarations.py, which is generated."""
import ctypes as C
import os
import queue
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Type, TypeVar

from . import _declarations as D

T = TypeVar('T')
_NAME = ('bitnet.dll' if sys.platform == 'win32' else
         'libbitnet.dylib' if sys.platform == 'darwin' else 'libbitnet.so')
# A CDLL, so that a call frees the interpreter (GIL) while it computes.
_dll = C.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), _NAME))


class _Library:
    """lib.bitnet_NAME(...), with the types that bitnet.h declares."""

    def __getattr__(self, name: str) -> Any:
        symbol, result, parameters = D.FUNCTIONS[name]
        function = getattr(_dll, symbol)
        function.restype, function.argtypes = result, parameters
        setattr(self, name, function)
        return function


lib = _Library()


# ---- errors ----

class BitnetError(Exception):
    """What the library refuses, in its own words. Its subclasses say what kind of error it is."""


class ArgumentError(BitnetError, ValueError):
    """A parameter is out of range, or does not fit the others."""


class OutOfMemoryError(BitnetError, MemoryError):
    """There is no memory for it."""


class FileError(BitnetError, OSError):
    """A file cannot be opened, read or written."""


class FormatError(BitnetError, ValueError):
    """A file, a saved state, a grammar or a schema is damaged, cut or not what it should be."""


class UnsupportedError(BitnetError):
    """The library or the model cannot do this."""


class LimitError(BitnetError):
    """It is over a limit."""


class ContextFullError(BitnetError):
    """The text has more tokens than the context."""


class BusyError(BitnetError):
    """The session is writing another text, or another thread is using it."""


class ClosedError(BitnetError):
    """close() has been called, perhaps by another thread while this one was writing."""


class CancelledError(BitnetError):
    """The call was cancelled. Who cancels gets the reason instead, such as KeyboardInterrupt."""


_KINDS: Dict[int, Type[BitnetError]] = {
    D.BITNET_ERR_ARG: ArgumentError, D.BITNET_ERR_MEMORY: OutOfMemoryError,
    D.BITNET_ERR_IO: FileError, D.BITNET_ERR_TRUNCATED: FormatError,
    D.BITNET_ERR_FORMAT: FormatError, D.BITNET_ERR_UNSUPPORTED: UnsupportedError,
    D.BITNET_ERR_LIMIT: LimitError, D.BITNET_ERR_FULL: ContextFullError,
    D.BITNET_ERR_CANCELLED: CancelledError, D.BITNET_ERR_BUSY: BusyError,
}


def error(code: int, text: str = '') -> BitnetError:
    """The exception for a bitnet_result."""
    text = text or name(lib.bitnet_result_text(code))
    return _KINDS.get(code, BitnetError)(text)


def call(function: Any, *arguments: Any) -> int:
    """A function whose last parameter is a bitnet_error; its failure is raised."""
    err = D.bitnet_error()
    result = function(*arguments, C.byref(err))
    if result < 0:
        raise error(result, err.text.decode())
    return result


# ---- texts ----

def text(data: bytes) -> D.bitnet_text:
    """It keeps the bytes alive."""
    return D.bitnet_text(C.cast(C.c_char_p(data), C.POINTER(C.c_char)), len(data))


def name(pointer: Any) -> str:
    """Of a text that ends with a NUL; '' of none."""
    return C.string_at(pointer).decode() if pointer else ''


def string(value: Any) -> str:
    """Of a bitnet_text, which is UTF-8."""
    return C.string_at(value.data, value.size).decode() if value.size else ''


def counted(function: Any, kind: Any, *arguments: Any) -> Any:
    """Calls a function like snprintf, function(..., out, cap): for the size, then for the array."""
    size = function(*arguments, None, 0)
    array = (kind * max(size, 0))()
    if size > 0:
        size = function(*arguments, array, size)
    if size < 0:
        raise error(size)
    return array


# ---- calls that can be cancelled ----

class Flag:
    """Set by any thread, it ends the call that asks it: cancel is a function of C, atoi, and asks
    without waiting for the interpreter, which other threads of Python may keep busy."""

    _atoi = (C.cdll.msvcrt if sys.platform == 'win32' else C.CDLL(None)).atoi
    cancel = C.cast(_atoi, D.bitnet_cancel_fn)

    def __init__(self) -> None:
        self._text = C.create_string_buffer(b'0')
        self.ud = C.cast(self._text, C.c_void_p)

    def set(self) -> None:
        self._text[0] = b'1'

    def clear(self) -> None:
        self._text[0] = b'0'

    def is_set(self) -> bool:
        return self._text[0] == b'1'


class _Helper:
    """A thread that makes one call after the other."""

    def __init__(self) -> None:
        self.pid = os.getpid()                 # after a fork, the child has no such thread
        self.jobs: 'queue.SimpleQueue[Callable[[], None]]' = queue.SimpleQueue()
        threading.Thread(target=self._work, name='bitnet_h', daemon=True).start()

    def _work(self) -> None:
        while True:
            self.jobs.get()()


_helper: Optional[_Helper] = None


def interruptible(function: Callable[[], T], flag: Flag) -> T:
    """Calls a function that ends soon when the flag is set. Python handles signals on its main thread
    alone, and only while that runs Python. So there another thread makes the call, while this one
    waits, and an exception of a handler, KeyboardInterrupt for instance, sets the flag."""
    global _helper
    if threading.current_thread() is not threading.main_thread():
        return function()
    if _helper is None or _helper.pid != os.getpid():
        _helper = _Helper()
    done = threading.Event()
    results: List[T] = []
    errors: List[BaseException] = []
    interruptions: List[BaseException] = []

    def job() -> None:
        if done.is_set():
            return
        try:
            results.append(function())
        except BaseException as e:
            errors.append(e)
        done.set()

    queued = False
    while True:
        try:
            if done.is_set():
                break
            if not queued:                     # interrupted behind this, it is done again: see job
                _helper.jobs.put(job)
                queued = True
            done.wait(0.05)                    # Windows wakes no thread for Ctrl-C
        except BaseException as e:
            interruptions.append(e)
            flag.set()
    for e in interruptions[:1], errors:
        if e:
            raise e.pop()
    return results[0]
