"""Samples with llama.cpp for bench/llama-cpp.ts: a line "BATCH TOKENS" on standard input is answered with tokens per processor second."""

import ctypes
import sys
import time

import llama_cpp

PROMPT = 16


def load(path: str):
    llama_cpp.llama_backend_init()
    llama_cpp.llama_log_set(SILENT, ctypes.c_void_p(0))
    settings = llama_cpp.llama_model_default_params()
    settings.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(path.encode(), settings)
    if not model:
        sys.exit(f"llama.cpp cannot read {path}")
    return model


SILENT = llama_cpp.llama_log_callback(lambda level, text, data: None)


def measure(model, batch_size: int, count: int) -> float:
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = 256 * batch_size
    settings.n_seq_max = batch_size
    settings.n_threads = settings.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model, settings)
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_temp(1.0))
    llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_dist(1))
    batch = llama_cpp.llama_batch_init(max(batch_size, PROMPT), 0, 1)

    def put(row: int, token: int, position: int, sequence: int, logits: bool) -> None:
        batch.token[row] = token
        batch.pos[row] = position
        batch.n_seq_id[row] = 1
        batch.seq_id[row][0] = sequence
        batch.logits[row] = logits

    def decode(rows: int) -> None:
        batch.n_tokens = rows
        if llama_cpp.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")

    tokens = [0] * batch_size
    for sequence in range(batch_size):
        for position in range(PROMPT):
            put(position, 100 + (position * 37 + sequence * 11) % 40000, position, sequence, position == PROMPT - 1)
        decode(PROMPT)
        tokens[sequence] = llama_cpp.llama_sampler_sample(chain, context, PROMPT - 1)
    started = time.process_time()
    for step in range(count):
        for sequence, token in enumerate(tokens):
            put(sequence, token, PROMPT + step, sequence, True)
        decode(batch_size)
        tokens = [llama_cpp.llama_sampler_sample(chain, context, row) for row in range(batch_size)]
    seconds = time.process_time() - started
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_sampler_free(chain)
    llama_cpp.llama_free(context)
    return batch_size * count / seconds


def main() -> None:
    model = load(sys.argv[1])
    print(f"llama-cpp-python {llama_cpp.__version__}", flush=True)
    for line in sys.stdin:
        batch_size, count = map(int, line.split())
        print(measure(model, batch_size, count), flush=True)


main()
