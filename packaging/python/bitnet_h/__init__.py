"""Ternary (1.58-bit) language models on any CPU: the C library bitnet.h.

    from bitnet_h import Model

    with Model('model.gguf') as model:
        for text in model.generate('Once upon a time', max_tokens=100):
            print(text, end='', flush=True)
"""
try:
    from ._declarations import BITNET_VERSION as __version__
except ModuleNotFoundError:
    raise ImportError(f'{__path__[0]} has the sources of bitnet_h, not the package that pip has installed: '
                      'start Python in another folder') from None
from ._library import (ArgumentError, BitnetError, BusyError, CancelledError, ClosedError,
                       ContextFullError, FileError, FormatError, LimitError, OutOfMemoryError,
                       UnsupportedError)
from ._model import (ChatOptions, ChatTemplate, GenerateOptions, Info, Message, Model, Part, Session,
                     Stats, Stream)

__all__ = ['ArgumentError', 'BitnetError', 'BusyError', 'CancelledError', 'ChatOptions', 'ChatTemplate',
           'ClosedError', 'ContextFullError', 'FileError', 'FormatError', 'GenerateOptions', 'Info',
           'LimitError', 'Message', 'Model', 'OutOfMemoryError', 'Part', 'Session', 'Stats', 'Stream',
           'UnsupportedError', '__version__']
