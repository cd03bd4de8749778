"""Tokens a second of a transformers generate loop over batches of random prompts: folder prompt generated counts."""

import sys
import time

import torch
from transformers import AutoModelForCausalLM

folder, prompt, generated, counts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
model = AutoModelForCausalLM.from_pretrained(folder)
for count in map(int, counts.split(",")):
    best = 0.0
    for _ in range(3):
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
        best = max(best, count * generated / (time.perf_counter() - started))
    print(f"transformers {count}: {best:.0f} tokens/s")
