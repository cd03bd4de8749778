"""An interaction for verl (0.8): every environment of a server as the user of a multi-turn rollout.

`interaction_config.yaml`, named by `actor_rollout_ref.rollout.multi_turn.interaction_config_path`:

    interaction:
      - name: ragen
        class_name: verl_interaction.RagenInteraction
        config: {env_id: Sokoban-v0, config: {preset: simple}, max_turns: 5}

Rows of the data set carry `extra_info.interaction_kwargs: {"name": "ragen", "seed": 17}`; their prompt is
`first_prompt(env_id, seed, config)`. The reward of a turn is the environment's; `<answer>Up || Left</answer>` takes
several actions.
"""

from __future__ import annotations

from typing import Any, Optional
from uuid import uuid4

import ragen_env
from verl.interactions.base import BaseInteraction

FORMAT = "Answer with <answer>your action</answer>; several are separated by ||."


def wrappers_of(max_actions: int = 5) -> list[dict[str, Any]]:
    """The server reads the actions out of the answer."""
    return [{"name": "action_text", "options": {"max_actions": max_actions, "think": False}}]


def first_prompt(env_id: str, seed: int, config: dict[str, Any] | None = None) -> list[dict[str, str]]:
    """The `prompt` of a row of the data set."""
    env = ragen_env.RagenEnv(env_id, config=config, wrappers=wrappers_of())
    observation, _info = env.reset(seed=seed)
    return [{"role": "user", "content": f"{env.description['instruction']}\n{FORMAT}\n\n{observation}"}]


class RagenInteraction(BaseInteraction):
    def __init__(self, config: dict[str, Any]):
        super().__init__(config)
        self._client = ragen_env.AsyncClient(config.get("base_url"), token=config.get("token"))
        self._turns = int(config.get("max_turns", 5))
        self._episodes: dict[str, dict[str, Any]] = {}

    async def start_interaction(self, instance_id: Optional[str] = None, seed: int = 0, **kwargs: Any) -> str:
        session = await self._client.create(
            self.config["env_id"],
            config=self.config.get("config"),
            wrappers=wrappers_of(self.config.get("max_actions", 5)),  # type: ignore[arg-type]
            seed=seed,
        )
        instance_id = instance_id or str(uuid4())
        self._episodes[instance_id] = {"session": session["session_id"], "return": 0.0, "turns": 0}
        return instance_id

    async def generate_response(
        self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any
    ) -> tuple[bool, str, float, dict[str, Any]]:
        episode = self._episodes[instance_id]
        answer = next((one["content"] for one in reversed(messages) if one.get("role") == "assistant"), "")
        reply = await self._client.step(episode["session"], str(answer))
        episode["return"] += reply["reward"]
        episode["turns"] += 1
        over = reply["terminated"] or reply["truncated"] or episode["turns"] >= self._turns
        return over, str(reply["observation"]), float(reply["reward"]), dict(reply["info"])

    async def calculate_score(self, instance_id: str = "", **kwargs: Any) -> float:
        return float(self._episodes[instance_id]["return"])

    async def finalize_interaction(self, instance_id: str = "", **kwargs: Any) -> None:
        episode = self._episodes.pop(instance_id, None)
        if episode is not None:
            await self._client.close_session(episode["session"])
