"""What the tests of embed and perplexity share: a line for each case (ok, FAIL, skip), and files in a folder of their own."""
import atexit
import os
import shutil
import tempfile

here, tmp = os.path.dirname(os.path.abspath(__file__)), tempfile.mkdtemp()
shared = os.environ.get("BITNET_TEST_DATA", "../shared")
counts = {"ok": 0, "FAIL": 0, "skip": 0}
atexit.register(shutil.rmtree, tmp)


def say(verdict, name, why=""):
    counts[verdict] += 1
    print(verdict, name + (": " + why if why else ""), flush=True)


def check(name, good, why=""):
    say("ok" if good else "FAIL", name, "" if good else str(why)[:300])


def path(name):
    return os.path.join(tmp, name)


def write(name, data):
    with open(path(name), "wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)
    return path(name)


def read(name):
    with open(path(name), "rb") as f:
        return f.read()


def run_all(name, tests):
    """Returns the exit code."""
    for test in tests:
        test()
    print("%s: %d passed, %d failed, %d skipped" % (name, counts["ok"], counts["FAIL"], counts["skip"]))
    return counts["FAIL"] > 0
