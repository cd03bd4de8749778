"""Writes muon.json: steps of torch.optim.Muon, in float64 where torch takes bfloat16.

    pip install torch==2.13.0
    python test/golden/make-muon.py
"""

import json
from pathlib import Path

import torch

# Muon makes its matrices orthogonal in bfloat16; in float64 the numbers can be compared closely.
torch.Tensor.bfloat16 = torch.Tensor.double

SHAPES = {"square": [6, 6], "wide": [3, 7], "tall": [8, 2]}
SETTINGS = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}

torch.manual_seed(0)
cases = {}
for name, shape in SHAPES.items():
    weight = torch.nn.Parameter(torch.randn(shape, dtype=torch.float64))
    optimizer = torch.optim.Muon(
        [weight], nesterov=True, adjust_lr_fn="match_rms_adamw", **SETTINGS
    )
    start = weight.detach().clone()
    gradients, weights = [], []
    for _ in range(3):
        weight.grad = torch.randn(shape, dtype=torch.float64)
        optimizer.step()
        gradients.append(weight.grad.flatten().tolist())
        weights.append(weight.detach().flatten().tolist())
    cases[name] = {
        "shape": shape,
        "start": start.flatten().tolist(),
        "gradients": gradients,
        "weights": weights,
    }

target = Path(__file__).with_name("muon.json")
target.write_text(json.dumps({"torch": torch.__version__, **SETTINGS, "cases": cases}) + "\n")
