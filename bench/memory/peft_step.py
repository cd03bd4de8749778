"""Training steps of a model with PEFT's LoRA, or of all its weights: seconds of the fastest, and the process's most memory.

    python peft_step.py FOLDER RANK BATCH TOKENS LEARNED THREADS RECOMPUTE STEPS

RANK 0 learns all weights. The loss is the cross-entropy of the last LEARNED tokens of each sequence.
"""

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM

folder, rank, batch, tokens, learned, threads, recompute, steps = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
if recompute:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
if rank:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(
        model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    )
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
ids = torch.randint(model.config.vocab_size, (batch, tokens))
times = []
for _ in range(steps):
    start = time.perf_counter()
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=learned + 1).logits[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -learned:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_((p for p in model.parameters() if p.requires_grad), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    times.append(time.perf_counter() - start)
# ru_maxrss would count what the process that started this one had.
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024
print(json.dumps({"seconds": min(times), "peak": peak}))
