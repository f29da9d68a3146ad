"""talk.py - a chat, an answer as JSON, and the nearest of some notes, with the package bitnet-h

    pip install ./packaging/python        # in a venv; or bitnet-h, where that is published
    python3 examples/languages/talk.py MODEL.gguf "What is the capital of France?" [EMBEDDING.gguf]

Vectors want an embedding model. Without one they are made with the chat's, which is not trained for it.
"""
import json
import sys

from bitnet_h import BitnetError, Model

SCHEMA = {'type': 'object', 'properties': {'city': {'enum': ['Berlin', 'Paris', 'Rome']}},
          'required': ['city'], 'additionalProperties': False}
NOTES = ['Paris lies on the Seine.', 'Bread needs an hour in the oven.', 'The dog sleeps.']


def talk(path: str, question: str, embedding: str = '') -> None:
    with Model(path) as model:
        for text in model.chat(question, max_tokens=100):
            print(text, end='', flush=True)
        print()
        print(json.loads(model.chat(question, json_schema=SCHEMA).text())['city'])
    with Model(embedding or path) as model:
        *notes, query = model.embed([*NOTES, question], pooling=None if embedding else 'mean')
        likeness = [sum(float(x) * float(y) for x, y in zip(note, query)) for note in notes]
        print(f'{max(likeness):.6f} {NOTES[likeness.index(max(likeness))]}')


if __name__ == '__main__':
    if len(sys.argv) not in (3, 4):
        sys.exit(f'usage: {sys.argv[0]} MODEL.gguf MESSAGE [EMBEDDING.gguf]')
    try:
        talk(*sys.argv[1:])
    except BitnetError as e:
        sys.exit(str(e))
