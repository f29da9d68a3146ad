"""Speed of llama.cpp on this machine, for bench --compare: reads a prompt of -p tokens, then writes -n.

    npm install @node-llama-cpp/linux-x64          llama.cpp's library, built for each CPU
    build/bench F.gguf -t 2 --compare "python3 examples/bench/llama_cpp.py F.gguf -t 2" \\
        --compare-form "read {pp512} tok/s" --compare-form "wrote {tg64} tok/s"

Its llama-bench measures the same; npm has only the library. LLAMA_NPM: the folder of node_modules."""
import argparse
import ctypes as C
import glob
import os
import time

args = argparse.ArgumentParser()
args.add_argument("model")
args.add_argument("-t", type=int, default=2)
args.add_argument("-p", type=int, default=512)
args.add_argument("-n", type=int, default=64)
args = args.parse_args()

folder = glob.glob(os.environ.get("LLAMA_NPM", "node_modules") + "/@node-llama-cpp/linux-x64/bins/*")[0]


def library(pattern, mode=C.RTLD_LOCAL):
    return C.CDLL(glob.glob(folder + "/" + pattern)[0], mode=mode)


class Params(C.Structure):        # larger than any struct of parameters; passed by value on the stack
    _fields_ = [("bytes", C.c_uint8 * 512)]


class Batch(C.Structure):
    _fields_ = [("n", C.c_int32), ("token", C.POINTER(C.c_int32)), ("rest", C.c_void_p * 5)]


library("libggml-base*.so", C.RTLD_GLOBAL)
ggml = library("libggml.*so", C.RTLD_GLOBAL)
llama = library("libllama.*so")
ggml.ggml_backend_load_all_from_path(folder.encode())
quiet = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda level, text, ud: None)
llama.llama_log_set(quiet, None)
for name in ("llama_model_default_params", "llama_context_default_params"):
    getattr(llama, name).restype = Params
llama.llama_model_load_from_file.restype = C.c_void_p
llama.llama_init_from_model.argtypes = [C.c_void_p, Params]
llama.llama_init_from_model.restype = C.c_void_p
llama.llama_batch_get_one.restype = Batch
llama.llama_decode.argtypes = [C.c_void_p, Batch]
llama.llama_set_n_threads.argtypes = [C.c_void_p, C.c_int32, C.c_int32]
llama.llama_synchronize.argtypes = [C.c_void_p]
model = llama.llama_model_load_from_file(args.model.encode(), llama.llama_model_default_params())
params = llama.llama_context_default_params()
C.cast(C.byref(params), C.POINTER(C.c_uint32))[0] = args.p + args.n + 64       # n_ctx comes first
context = model and llama.llama_init_from_model(model, params)
if not context:
    raise SystemExit("llama.cpp does not load " + args.model)
llama.llama_set_n_threads(context, args.t, args.t)


def seconds(count, size):
    """Of passes over so many tokens of this number."""
    start = time.perf_counter()
    for _ in range(count):
        tokens = (C.c_int32 * size)(*(10 + i % 90 for i in range(size)))
        if llama.llama_decode(context, llama.llama_batch_get_one(tokens, size)):
            raise SystemExit("llama.cpp does not evaluate it")
    llama.llama_synchronize(context)
    return time.perf_counter() - start


seconds(4, 8)                      # the file's pages, and caches
print("read %.2f tok/s" % (args.p / seconds(1, args.p)))
print("wrote %.2f tok/s" % (args.n / seconds(args.n, 1)))
