"""Loads checkpoints that ragen wrote with transformers and PEFT, for bench/families.ts and
trainer/models/tokenizer/load.test.ts.

    reference.py logits <folder>…    input.json: {"ids": [[...]], "mask": [[...]], "positions": [[...]]}, with lora/
    reference.py encode <folder>…    input.json: {"texts": [...]}

Prints a list as one line of JSON, an entry for each folder: logits of the base and with the adapter, or token ids.
"""

import json
import sys
from pathlib import Path


def logits(folder, given):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ids, mask, positions = (torch.tensor(given[key]) for key in ("ids", "mask", "positions"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        base = model(ids, attention_mask=mask, position_ids=positions).logits
        found = {"base": base.tolist()}
        if (folder / "lora").exists():
            adapted = PeftModel.from_pretrained(model, folder / "lora").eval()
            found["adapted"] = adapted(ids, attention_mask=mask, position_ids=positions).logits.tolist()
    return found


def encode(folder, given):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer.encode(text, add_special_tokens=False) for text in given["texts"]]


if __name__ == "__main__":
    action = {"logits": logits, "encode": encode}[sys.argv[1]]
    folders = [Path(name) for name in sys.argv[2:]]
    print(json.dumps([action(folder, json.loads((folder / "input.json").read_text())) for folder in folders]))
