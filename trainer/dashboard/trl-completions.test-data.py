"""Two steps of TRL's GRPO with a tiny model, as `log_completions` writes them.

Usage: trl-completions.test-data.py MODEL FOLDER; the table is in FOLDER/completions.
"""

import json
import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

model, folder = sys.argv[1:]


def length(completions, **_):
    return [float(len(completion[0]["content"])) for completion in completions]


def accuracy(completions, answer, **_):
    return [1.0 if right in completion[0]["content"] else None for completion, right in zip(completions, answer)]


prompts = [[{"role": "system", "content": "Be short."}, {"role": "user", "content": f"Where is {i}?"}] for i in range(8)]
trainer = GRPOTrainer(
    model=model,
    reward_funcs=[length, accuracy],
    train_dataset=Dataset.from_dict({"prompt": prompts, "answer": ["left", "up"] * 4}),
    args=GRPOConfig(
        output_dir=folder,
        log_completions=True,
        max_steps=2,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=24,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
    ),
)
trainer.train()
print(json.dumps({"steps": trainer.state.global_step}))
