"""Generates with transformers over batches of random prompts: folder prompt generated.

Prints `ready`, then for each number of prompts on standard input the tokens a second of one batch.
"""

import sys
import time

import torch
from transformers import AutoModelForCausalLM

folder, prompt, generated = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = AutoModelForCausalLM.from_pretrained(folder)
print("ready", flush=True)
for line in sys.stdin:
    count = int(line)
    ids = torch.randint(3, model.config.vocab_size, (count, prompt))
    started = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            min_new_tokens=generated,
            max_new_tokens=generated,
            pad_token_id=0,
        )
    print(count * generated / (time.perf_counter() - started), flush=True)
