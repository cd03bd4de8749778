"""Makes test/golden/dpo.json: what TRL's DPOTrainer computes of a fixed batch of preference pairs.

    python3 -m venv venv && venv/bin/pip install torch transformers trl
    venv/bin/python test/golden/make-dpo.py test/golden

The trainer tokenizes, collates, runs policy and reference and computes its loss (loss_type "sigmoid") unchanged; this script
only keeps the log-probabilities that go through it, with the gradient that the loss sends back to them. The policy is
models/qwen2-tiny with noise on its weights, the reference the same model without, both in float64. Rows are the chosen
responses first, then the rejected ones in the same order. Python's side of trainer/algorithms/losses/dpo.test.ts.
"""

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer
from trl.trainer import dpo_trainer

OUT = Path(sys.argv[1])
MODEL = OUT / "models/qwen2-tiny"
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins"]
PAIRS = [
    {"prompt": "Room:", "chosen": " Up Up", "rejected": " Left"},
    {"prompt": "A box and a wall:", "chosen": " Down", "rejected": " Right Right Down"},
    {"prompt": "Go", "chosen": " Right Up", "rejected": " Up"},
    {"prompt": "Lake", "chosen": " Left Left Up", "rejected": " Down Down"},
]


def listed(tensor: torch.Tensor) -> list:
    return [[round(value, 9) for value in row] for row in tensor.tolist()]


def case(beta: float) -> dict:
    torch.manual_seed(7)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    reference = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64)
    policy = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    with tempfile.TemporaryDirectory() as folder:
        trainer = DPOTrainer(
            model=policy,
            ref_model=reference,
            args=DPOConfig(
                output_dir=folder,
                beta=beta,
                loss_type="sigmoid",
                per_device_train_batch_size=len(PAIRS),
                use_cpu=True,
                report_to=[],
                seed=7,
                bf16=False,
                gradient_checkpointing=False,
            ),
            train_dataset=Dataset.from_list(PAIRS),
            processing_class=tokenizer,
        )
        inputs = next(iter(trainer.get_train_dataloader()))
    kept: list[torch.Tensor] = []
    own = dpo_trainer.selective_log_softmax

    def keep(logits, labels):
        """TRL writes zeros into its result in place, so it gets a copy."""
        log_probs = own(logits, labels)
        if log_probs.requires_grad:
            log_probs.retain_grad()
        kept.append(log_probs)
        return log_probs.clone()

    dpo_trainer.selective_log_softmax = keep
    try:
        trainer.model.train()
        loss = trainer.compute_loss(trainer.model, dict(inputs))
    finally:
        dpo_trainer.selective_log_softmax = own
    loss.backward()
    policy_log_probs, reference_log_probs = kept
    return {
        "beta": beta,
        "mask": inputs["completion_mask"][:, 1:].tolist(),
        "log_probs": listed(policy_log_probs),
        "reference_log_probs": listed(reference_log_probs),
        "loss": loss.item(),
        "gradient": listed(policy_log_probs.grad),
        "metrics": {name: trainer._metrics["train"][name][-1] for name in METRICS},
    }


made_by = {name: version(name) for name in ["trl", "torch", "transformers"]}
result = {"made_by": made_by, "cases": [case(beta) for beta in (0.1, 0.7)]}
(OUT / "dpo.json").write_text(json.dumps(result) + "\n")
