"""PyTorch + transformers on the shapes of bench/compute.ts: one JSON request a line in, one JSON answer a line out."""

import json
import sys
import time

import torch
import transformers


def build(shape, device):
    """float32 on the processor, bf16 on a GPU."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=shape["vocabulary"],
        hidden_size=shape["hidden"],
        intermediate_size=shape["feedForward"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["keyValueHeads"],
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = transformers.Qwen2ForCausalLM(config)
    return model if device == "cpu" else model.to(device, torch.bfloat16)


def now(device):
    """Milliseconds, when the device has done what it was asked."""
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() * 1000


def train(shape, steps, device):
    model = build(shape, device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, shape["vocabulary"], (shape["batch"], shape["time"]), device=device)
    times = []
    for _ in range(steps + 1):
        start = now(device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(now(device) - start)
    return times[1:]


def decode(shape, steps, device):
    model = build(shape, device).eval()
    prompt = torch.randint(1, shape["vocabulary"], (shape["batch"], shape["prompt"]), device=device)
    count = shape["generated"]
    times = []
    with torch.no_grad():
        for _ in range(steps + 1):
            start = now(device)
            model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=True,
                min_new_tokens=count,
                max_new_tokens=count,
                top_k=0,
            )
            times.append(now(device) - start)
    return times[1:]


TASKS = {"train": train, "decode": decode}

transformers.logging.set_verbosity_error()
print(
    json.dumps(
        {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "devices": ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"],
        }
    ),
    flush=True,
)
for line in sys.stdin:
    request = json.loads(line)
    torch.set_num_threads(request["threads"])
    print(json.dumps(TASKS[request["task"]](request["shape"], request["steps"], request["device"])), flush=True)
