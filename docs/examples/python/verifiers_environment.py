"""An environment for verifiers (0.4), the library of prime-rl: every environment of a server.

    vf-eval verifiers_environment --env.taskset.env-id Sokoban-v0 --env.taskset.base-url http://127.0.0.1:8080

A task is a seed; the reward is the return of the episode. `<answer>Up || Left</answer>` takes several actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ragen_env
import verifiers.v1 as vf
from pydantic import Field

FORMAT = "Answer with <answer>your action</answer>; several are separated by ||."


class RagenData(vf.TaskData):
    env_id: str
    base_url: str | None
    config: dict[str, Any]
    max_actions: int
    max_turns: int
    seed: int


class RagenTask(vf.Task[RagenData]):
    pass


class RagenTasksetConfig(vf.TasksetConfig):
    env_id: str = "Sokoban-v0"
    base_url: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    seeds: int = 1000
    max_turns: int = 5
    max_actions: int = 5


class RagenTaskset(vf.Taskset[RagenTask, RagenTasksetConfig]):
    def load(self) -> Iterator[RagenTask]:
        fields = self.config.model_dump(include={"env_id", "base_url", "config", "max_actions", "max_turns"})
        for seed in range(self.config.seeds):
            name = f"{self.config.env_id}#{seed}"
            yield RagenTask(RagenData(name=name, prompt=None, seed=seed, **fields), self.config.task)


class RagenEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class RagenEnv(vf.Env[RagenEnvConfig]):
    async def run(self, task: Any, agents: Any) -> None:
        data = task.data
        wrapper: Any = {"name": "action_text", "options": {"max_actions": data.max_actions, "think": False}}
        async with ragen_env.AsyncClient(data.base_url) as client:
            described = await client.describe_environment(data.env_id, config=data.config)
            session = await client.create(data.env_id, config=data.config, wrappers=[wrapper], seed=data.seed)
            total, success = 0.0, False
            text = f"{described['instruction']}\n{FORMAT}\n\n{session['observation']}"
            try:
                async with agents.player.interaction(task) as interaction:
                    for _ in range(data.max_turns):
                        segment = await interaction.turn(text)
                        if segment.terminated:
                            break
                        reply = await client.step(session["session_id"], segment.last_reply)
                        total, text = total + reply["reward"], str(reply["observation"])
                        success = bool(reply["info"].get("success"))
                        if reply["terminated"] or reply["truncated"]:
                            break
            finally:
                await client.close_session(session["session_id"])
        interaction.trace.record_reward("episode_return", total)
        interaction.trace.record_metric("success", float(success))


__all__ = ["RagenEnv", "RagenTaskset"]
