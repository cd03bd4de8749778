"""Makes the golden adapters next to test/golden/models/qwen2-tiny: what PEFT computes with DoRA, and of adapters over a base
whose linear weights were rounded as policy.lora.quantization rounds them.

    python3 -m venv venv && venv/bin/pip install torch transformers peft
    venv/bin/python test/golden/make-adapters.py test/golden/models/qwen2-tiny

Writes dora/ as PEFT does, and adapters.json: for each case (dropout with masks given) the loss over valid positions, logits and the gradients of the
adapter. Python's side of trainer/models/adapters/*.test.ts.
"""

import json
import sys
import zlib
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

BLOCK = 64
PRIME = 509
DROPOUT = 0.3
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# QLoRA (Dettmers et al., 2023), appendix E.
NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip


def fake_quantized(weight, kind):
    """The weights that codes stand for: int8 in blocks of a row, nf4 in blocks of the whole matrix."""
    if kind == "int8":
        rows = torch.nn.functional.pad(weight, (0, -weight.shape[1] % BLOCK))
        blocks = rows.reshape(-1, BLOCK)
        scale = blocks.abs().amax(1, keepdim=True) / 127
        return ((blocks / scale).round() * scale).reshape(rows.shape)[:, : weight.shape[1]]
    blocks = weight.reshape(-1, BLOCK)
    largest = blocks.abs().amax(1, keepdim=True)
    levels = torch.tensor(NF4)
    nearest = (blocks / largest).unsqueeze(-1).sub(levels).abs().argmin(-1)
    return (levels[nearest] * largest).reshape(weight.shape)


def base_model(folder, quantization):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if quantization is not None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if any(name.endswith(f".{module}.weight") for module in MODULES):
                    parameter.copy_(fake_quantized(parameter, quantization))
    return model


def loss_and_gradients(model, forward):
    ids, mask, positions = (
        torch.tensor(forward[key]) for key in ("input_ids", "attention_mask", "position_ids")
    )
    model.zero_grad()
    logits = model(ids, attention_mask=mask, position_ids=positions).logits
    logprobs = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
    valid = (mask[:, 1:] * mask[:, :-1]).float()
    loss = -(logprobs * valid).sum() / valid.sum()
    loss.backward()
    grads = {
        name.removeprefix("base_model.model.").replace(".default.weight", ".weight").replace(
            "lora_magnitude_vector.weight", "lora_magnitude_vector"
        ): dict(
            norm=float(parameter.grad.double().norm()),
            sum=float(parameter.grad.double().sum()),
            head=rounded(parameter.grad.flatten()[:4]),
        )
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    last = int(mask[0].nonzero().max())
    return dict(
        loss_mean_over_valid=float(loss.detach()),
        logits_last_valid_row0=rounded(logits[0, last]),
        grads=grads,
    )


def rounded(tensor):
    return [float(f"{x:.7g}") for x in tensor.flatten().tolist()]


class Masked(torch.nn.Module):
    """Dropout by the masks of trainer/models/adapters/lora.ts, in whole numbers."""

    def __init__(self, linear, inputs):
        super().__init__()
        self.columns = torch.empty(2, inputs, dtype=torch.int64)
        state = zlib.crc32(linear.encode())
        for column in range(inputs):
            for index, (first, below) in enumerate(((1, PRIME - 1), (0, PRIME))):
                state = (state * 1664525 + 1013904223) % 2**32
                self.columns[index, column] = first + (state >> 8) % below

    def forward(self, x):
        row = torch.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1)
        first, second = 1 + 37 * row % (PRIME - 1), 101 * row % PRIME
        mixed = first * self.columns[0] % PRIME
        mask = (mixed * (mixed + self.columns[1]) + second) % PRIME
        dropped = round(DROPOUT * PRIME)
        return x * (mask >= dropped) * (PRIME / (PRIME - dropped))


def drop_out(model):
    """PEFT computes with dropout where its layers are in training; nothing else of Qwen2 depends on that."""
    for name, module in list(model.named_modules()):
        if hasattr(module, "lora_dropout"):
            linear = name.removeprefix("base_model.model.")
            module.lora_dropout["default"] = Masked(linear, module.in_features)
    return model.train()


def make_dora(folder):
    config = LoraConfig(r=4, lora_alpha=8, target_modules=MODULES, use_dora=True, task_type="CAUSAL_LM")
    model = get_peft_model(base_model(folder, None), config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "lora_magnitude" in name:
                parameter.mul_(1 + 0.2 * noise)
            elif "lora_" in name:
                parameter.copy_(0.1 * noise)
    model.peft_config["default"].base_model_name_or_path = None
    model.save_pretrained(folder / "dora")
    (folder / "dora" / "README.md").unlink(missing_ok=True)
    (folder / "dora" / "adapter_model.safetensors").chmod(0o644)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    inputs = json.loads((target / "expected.json").read_text())["forward"]
    make_dora(target)
    found = {}
    for adapter in ("lora", "dora"):
        for quantization in (None, "int8", "nf4"):
            if adapter == "lora" and quantization is None:
                continue
            model = PeftModel.from_pretrained(
                base_model(target, quantization), target / adapter, is_trainable=True
            ).eval()
            name = adapter if quantization is None else f"{adapter} over {quantization}"
            found[name] = loss_and_gradients(model, inputs)
            print(f"{name}: loss {found[name]['loss_mean_over_valid']:.6f}")
        model = drop_out(PeftModel.from_pretrained(base_model(target, None), target / adapter, is_trainable=True))
        found[f"{adapter} with dropout"] = loss_and_gradients(model, inputs)
    (target / "adapters.json").write_text(json.dumps(found) + "\n")
