"""How finely activations are rounded that meet weights with a scale per group.

    activation_groups.py [MODEL...]        models of ../shared/models: s64, s128, s128p

bitnet.h rounds them to int8 with one step per token and group of the weights. This compares that,
and steps for 32, 64, 128 or 256 activations or for a whole token, with activations that are not
rounded: in float64, by the reference forward pass of ../shared/oracle (BITNET_TEST_DATA names
another folder), which needs numpy. For each it prints the difference of the logits (the root of its
mean square, in percent of theirs), the mean KL divergence of the next token's probabilities, and at
how many positions the most probable token is the same. Of the models, random ones of 3 layers:

                    s64                   s128                  s128p
    steps for 32    1.99 %, 0.00009, 24   2.28 %, 0.00012, 24   2.02 %, 0.00009, 22
    64              2.30 %, 0.00011, 23   2.67 %, 0.00016, 22   2.27 %, 0.00011, 23
    128             2.57 %, 0.00014, 22   2.97 %, 0.00020, 21   2.63 %, 0.00015, 23
    256             2.92 %, 0.00018, 21   3.22 %, 0.00023, 20   2.89 %, 0.00018, 22
    a token         3.18 %, 0.00022, 23   3.63 %, 0.00029, 21   3.20 %, 0.00022, 24

The groups of the weights themselves are the second row for s64 and the third for the others.
"""
import json
import os
import sys

DATA = os.environ.get("BITNET_TEST_DATA",
                      os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../shared"))
sys.path.insert(0, os.path.join(DATA, "oracle"))
import numpy as np  # noqa: E402
import ternary_ref as ref  # noqa: E402


def rounding(size):
    """ternary_ref.linear with a step for so many activations; 0: for all of a token."""
    def linear(w, x, exact):
        n, k = x.shape
        q, step = ref.quantize(x.reshape(n, -1, size or k))
        return exact_linear(w, (q * step).reshape(n, k), True)
    return linear


exact_linear = ref.linear


def probabilities(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def main():
    for name in sys.argv[1:] or ["s64", "s128", "s128p"]:
        path = os.path.join(DATA, "models", name)
        with open(path + ".json", encoding="utf-8") as f:
            tokens = json.load(f)["tokens"]
        ref.linear = exact_linear
        want = ref.forward(path + ".gguf", tokens, True)[0]
        p = probabilities(want)
        for size in (32, 64, 128, 256, 0):
            ref.linear = rounding(size)
            got = ref.forward(path + ".gguf", tokens)[0]
            error = np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean())
            kl = (p * np.log(p / probabilities(got))).sum(-1).mean()
            same = int((got.argmax(-1) == want.argmax(-1)).sum())
            print("%-6s steps for %-7s %.2f %%, KL %.5f, same token %d of %d"
                  % (name, size or "a token", 100 * error, kl, same, len(tokens)))


if __name__ == "__main__":
    main()
