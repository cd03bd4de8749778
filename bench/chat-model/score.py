"""Scores responses with an adapter that PEFT loads next to the base that its config names, for bench/chat-model.ts.

    score.py <adapter folder> <input.json>    {"sequences": [[token id, ...], ...]}

Prints one line of JSON: for each sequence the log-probability of every token after the first.
"""

import json
import sys
from pathlib import Path

import torch
from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
rows = []
for sequence in json.loads(Path(sys.argv[2]).read_text())["sequences"]:
    ids = torch.tensor([sequence])
    with torch.no_grad():
        scores = model(ids).logits[0, :-1].log_softmax(-1)
    rows.append(scores.gather(1, ids[0, 1:, None])[:, 0].tolist())
print(json.dumps(rows))
