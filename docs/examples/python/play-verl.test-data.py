"""Plays episodes through the agent loop for verl, made as verl's workers make it, with a stand-in for its engine.

Usage: play-verl.test-data.py URL MODEL_FOLDER; prints the outcome.
"""

import asyncio
import json
import os
import sys
from importlib.metadata import version

import hydra
import ragen_env
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput
from verl_agent_loop import first_prompt

url, folder = sys.argv[1:]
os.environ["RAGEN_URL"] = url
SEED = 7
SETTINGS = {"preset": "simple"}
tokenizer = AutoTokenizer.from_pretrained(folder)
seen: list[list[int]] = []


class Engine:
    """Answers of a player, and the prompts that came for them."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = iter(answers)

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict, **rest: object) -> TokenOutput:
        seen.append(list(prompt_ids))
        ids = [*tokenizer.encode(next(self.answers), add_special_tokens=False), tokenizer.eos_token_id]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))


async def play(answers: list[str]) -> dict[str, object]:
    loop = hydra.utils.instantiate(
        {"_target_": "verl_agent_loop.RagenAgentLoop", "env_id": "Sokoban-v0", "env_config": SETTINGS, "base_url": url, "max_turns": 3},
        trainer_config=DictConfigWrap(
            OmegaConf.create({"actor_rollout_ref": {"rollout": {"prompt_length": 2048, "response_length": 2048}}})
        ),
        server_manager=Engine(answers),
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(OmegaConf.create({})),
        hf_model_type="qwen2",
    )
    out = await loop.run({}, raw_prompt=first_prompt("Sokoban-v0", SEED, SETTINGS), extra_info={"seed": SEED})
    ours = [token for token, mine in zip(out.response_ids, out.response_mask) if mine]
    scores = out.extra_fields["turn_scores"]
    return {
        "turns": len(scores),
        "score": out.reward_score,
        "sum": sum(scores),
        "answers": tokenizer.decode(ours, skip_special_tokens=True),
        "logprobs": len(out.response_logprobs or []) == len(out.response_ids) == len(out.response_mask),
        "observations": tokenizer.decode([t for t, mine in zip(out.response_ids, out.response_mask) if not mine]),
    }


async def main() -> dict[str, object]:
    with ragen_env.Client(url) as client:
        session = client.create("Sokoban-v0", config=SETTINGS, seed=SEED)["session_id"]
        plan = client.reference(session, policy="optimal", count=100)["actions"]
        client.close_session(session)
        names = {1: "Up", 2: "Down", 3: "Left", 4: "Right"}
        best = "<answer>" + " || ".join(names.get(one, str(one)) for one in plan) + "</answer>"
        clumsy = await play(["nonsense"] * 3)
        again = all(later[: len(earlier)] == earlier for earlier, later in zip(seen, seen[1:]))
        solved = await play([best])
        return {
            "version": version("verl"),
            "clumsy": clumsy,
            "continues": again,
            "solved": solved,
            "open": len(client.list()["sessions"]),
        }


print(json.dumps(asyncio.run(main())))
