"""What a type checker must take of the package bitnet_h, and what it must not: each line with "wrong" is
an error, and no other one."""
import io
from pathlib import Path
from typing import Iterator, List

from bitnet_h import BitnetError, Message, Model, Part, Stream


def read(done: int, total: int) -> None:
    print(done, total)


def use() -> None:
    with Model(Path('model.gguf'), threads=2, progress=read) as model:
        pieces: Iterator[str] = model.generate('A', max_tokens=5, temperature=0.5, stop=['a', 'b'])
        messages: List[Message] = [{'role': 'user', 'content': 'Hello!'}]
        reply = model.chat(messages, thinking=False, json_schema={'type': 'object'}, seed=1)
        messages += [reply.message]
        parts: List[Part] = list(reply.parts())
        streams: List[Stream] = model.batch(['A', messages], parallel=2, top_k=1)
        text: str = reply.text() + next(pieces) + parts[0].text + streams[0].thinking
        number: int = reply.stats.tokens + model.info.context + len(model.tokenize(text))
        with model.session() as session:
            session.load(session.save())
            session.generate().close()
        wrong_names = model.generate('A', max_token=number)
        wrong_types = model.generate('A', temperature='hot')
        wrong_option = model.generate('A', thinking=True)
        print(wrong_names, wrong_types, wrong_option)
    Model(io.BytesIO(b''), wrong=1)
    try:
        Model(b'')
    except BitnetError as e:
        wrong: int = e
        print(wrong)


use()
