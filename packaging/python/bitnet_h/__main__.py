"""python -m bitnet_h MODEL.gguf: a chat. Ctrl-C stops a reply, Ctrl-D ends the chat."""
import os
import sys

from . import BitnetError, ContextFullError, Model


def main() -> int:
    if sys.argv[1:] in (['-h'], ['--help']):
        print(__doc__)
        return 0
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for stream in sys.stdin, sys.stdout:       # characters that a terminal does not know end no chat
        stream.reconfigure(errors='replace')   # type: ignore[union-attr]
    try:
        with Model(sys.argv[1]) as model, model.session() as session:
            while True:
                try:
                    line = input('> ')
                except (EOFError, KeyboardInterrupt):
                    return 0
                if not line.strip():
                    continue
                try:
                    for text in session.chat(line):
                        print(text, end='', flush=True)
                    print()
                except KeyboardInterrupt:
                    print()
                except ContextFullError as e:
                    session.clear()            # else it would be full for ever
                    print(f'({e}; the chat begins anew)')
                except BitnetError as e:
                    print(f'({e})')
    except KeyboardInterrupt:                  # while it loads
        return 130
    except BitnetError as e:
        print(e, file=sys.stderr)
        return 1
    except OSError as e:                       # of stdout, which Python writes to at its end, too
        print(e, file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


if __name__ == '__main__':
    sys.exit(main())
