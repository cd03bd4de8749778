"""GRPO with TRL (1.13): the model plays by calling tools, one for each action of the environment.

    npm run env-server
    python docs/examples/python/tiny_model.py /tmp/tiny left down right up
    python docs/examples/python/trl_grpo.py /tmp/tiny

A row of the data set is a seed; the members of its group play the same level. The reward is the return of the episode.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import ragen_env
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

ENV_ID = "FrozenLake-v0"
CONFIG = {"size": 3, "success_rate": 1}


class Player:
    """An episode. Public methods are the tools; ``environment_class`` adds one for each action."""

    settings: dict[str, Any] = {}

    def __init__(self) -> None:
        self._env = ragen_env.RagenEnv(**self.settings)
        self._return = 0.0
        self._over = True

    def reset(self, seed: int = 0, **_: Any) -> str:
        """The first observation of a seed's level."""
        observation, _info = self._env.reset(seed=seed)
        self._return, self._over = 0.0, False
        return f"{self._env.description['instruction']}\n\n{observation}"

    def get_reward(self) -> float:
        return self._return

    def _act(self, action: str) -> str:
        if self._over:
            return "The episode is over. Call no more tools."
        observation, reward, terminated, truncated, _info = self._env.step(action)
        self._return += reward
        self._over = terminated or truncated
        return f"{observation}\nReward: {reward:g}.{' The episode is over.' if self._over else ''}"


def tool_of(action: str) -> Callable[..., str]:
    # TRL describes every argument that has a type to the model: `self` has none.
    def tool(self) -> str:  # type: ignore[no-untyped-def]
        return self._act(action)

    tool.__name__ = tool.__qualname__ = action.lower().replace(" ", "_")
    tool.__doc__ = f"Takes the action {action}.\n\nReturns:\n    What you see then."
    return tool


def any_action(self, action: str) -> str:  # type: ignore[no-untyped-def]
    """Takes an action.

    Args:
        action: The action, as the instructions say.

    Returns:
        What you see then.
    """
    return self._act(action)


def environment_class(env_id: str, **settings: Any) -> type[Player]:
    """For ``environment_factory``: a player with a tool for each named action, or one that takes any text."""
    description = ragen_env.RagenEnv(env_id, **settings).description
    tools: list[Callable[..., str]] = [tool_of(action) for action in description.get("actions", [])] or [any_action]
    methods = {tool.__name__: tool for tool in tools}
    return type(env_id.split("-v")[0], (Player,), {**methods, "settings": {"env_id": env_id, **settings}})


def main(model: str, steps: int = 2, output: str = "/tmp/ragen-trl") -> GRPOTrainer:
    seeds = range(steps * 2)
    rows = {"prompt": [[{"role": "user", "content": ""}] for _ in seeds], "seed": list(seeds)}
    trainer = GRPOTrainer(
        model=model,
        train_dataset=Dataset.from_dict(rows),
        environment_factory=environment_class(ENV_ID, config=CONFIG),
        args=GRPOConfig(
            output_dir=output,
            max_steps=steps,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=512,
            max_tool_calling_iterations=4,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
        ),
    )
    trainer.train()
    return trainer


LOGGED = ["step", "loss", "reward", "reward_std", "tools/call_frequency", "tools/failure_frequency"]

if __name__ == "__main__":
    history = main(sys.argv[1]).state.log_history
    print(json.dumps([{key: one.get(key) for key in LOGGED} for one in history if "reward" in one]))
