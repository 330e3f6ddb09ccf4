"""The llama.cpp arm of `weir bench model`: answers one JSON request a line on standard input.

Arguments: model file, threads, context. Requests:
  {"op": "speed", "prompt": [ids], "decode": n}  -> prefill and decode seconds, CPU seconds of both
  {"op": "logits", "prompt": [ids], "forced": [ids]} -> logits of each step
  {"op": "tokenize", "hex": "..", "bos": bool, "special": bool} -> ids
Only the public binding of llama-cpp-python is used.
"""

import ctypes
import json
import sys
import time

import llama_cpp as lib
import numpy as np


def main():
    path, threads, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if not model:
        print(json.dumps({"error": "llama.cpp cannot load the model"}), flush=True)
        return
    params = lib.llama_context_default_params()
    params.n_ctx = context
    params.n_batch = context
    params.n_ubatch = 512
    params.n_threads = threads
    params.n_threads_batch = threads
    handle = lib.llama_init_from_model(model, params)
    vocab = lib.llama_model_get_vocab(model)
    size = lib.llama_vocab_n_tokens(vocab)
    print(json.dumps({"ready": True, "version": lib.__version__}), flush=True)

    def feed(ids):
        array = (lib.llama_token * len(ids))(*ids)
        if lib.llama_decode(handle, lib.llama_batch_get_one(array, len(ids))) != 0:
            raise RuntimeError("llama_decode failed")

    def logits():
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(handle, -1), shape=(size,))

    def fresh():
        lib.llama_memory_clear(lib.llama_get_memory(handle), True)

    def clocks():
        return time.perf_counter(), time.process_time()

    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "speed":
            fresh()
            begin = clocks()
            feed(request["prompt"])
            last = int(np.argmax(logits()))
            middle = clocks()
            for _ in range(request["decode"]):
                feed([last])
                last = int(np.argmax(logits()))
            end = clocks()
            answer = {
                "prefill_s": middle[0] - begin[0],
                "prefill_cpu_s": middle[1] - begin[1],
                "decode_s": end[0] - middle[0],
                "decode_cpu_s": end[1] - middle[1],
            }
        elif request["op"] == "logits":
            fresh()
            feed(request["prompt"])
            steps = [logits().tolist()]
            for token in request["forced"]:
                feed([token])
                steps.append(logits().tolist())
            answer = {"steps": steps}
        elif request["op"] == "tokenize":
            text = bytes.fromhex(request["hex"])
            room = (lib.llama_token * (len(text) + 8))()
            count = lib.llama_tokenize(
                vocab, text, len(text), room, len(text) + 8, request["bos"], request["special"]
            )
            answer = {"ids": list(room[:count])}
        else:
            answer = {"error": "unknown op"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
