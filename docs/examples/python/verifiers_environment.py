"""An environment for verifiers (0.3), the library of prime-rl: every environment of a server as a `MultiTurnEnv`.

`load_environment` is what `vf.load_environment("verifiers_environment", env_id="Sokoban-v0")`, `prime eval run` and
prime-rl call. An example is a seed; the reward is the return of the episode.
"""

from __future__ import annotations

from typing import Any

import ragen_env
import verifiers as vf
from datasets import Dataset

FORMAT = "Answer with <answer>your action</answer>; several are separated by ||."


class RagenMultiTurnEnv(vf.MultiTurnEnv):
    def __init__(
        self, env_id: str, base_url: str | None, config: dict[str, Any] | None, max_actions: int, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self._client = ragen_env.AsyncClient(base_url)
        wrapper: Any = {"name": "action_text", "options": {"max_actions": max_actions, "think": False}}
        self._session: dict[str, Any] = {"env_id": env_id, "config": config, "wrappers": [wrapper]}

    async def setup_state(self, state: vf.State) -> vf.State:
        session = await self._client.create(**self._session, seed=int(state["info"]["seed"]))
        state["session_id"], state["over"] = session["session_id"], False
        content = f"{state['info']['instruction']}\n{FORMAT}\n\n{session['observation']}"
        state["prompt"] = [*state["prompt"][:-1], vf.UserMessage(content=content)]
        return state

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        answer = next(one for one in reversed(messages) if one.role == "assistant")
        reply = await self._client.step(state["session_id"], str(answer.content or ""))
        state["trajectory"][-1]["reward"] = reply["reward"]
        state["over"] = reply["terminated"] or reply["truncated"]
        state["success"] = bool(reply["info"].get("success"))
        response: vf.Messages = [vf.UserMessage(content=str(reply["observation"]))]
        if state["over"]:
            state["final_env_response"] = response
        return response

    @vf.cleanup
    async def close_session(self, state: vf.State) -> None:
        if "session_id" in state:
            await self._client.close_session(state["session_id"])


async def episode_return(state: vf.State) -> float:
    return sum(float(step["reward"] or 0) for step in state["trajectory"])


async def success(state: vf.State) -> float:
    return float(state.get("success", False))


def load_environment(
    env_id: str = "Sokoban-v0",
    base_url: str | None = None,
    config: dict[str, Any] | None = None,
    seeds: int = 1000,
    max_turns: int = 5,
    max_actions: int = 5,
) -> vf.Environment:
    with ragen_env.Client(base_url) as client:
        instruction = client.describe_environment(env_id, config=config)["instruction"]
    rows = [{"question": "", "answer": "", "info": {"seed": seed, "instruction": instruction}} for seed in range(seeds)]
    return RagenMultiTurnEnv(
        env_id,
        base_url,
        config,
        max_actions,
        dataset=Dataset.from_list(rows),
        rubric=vf.Rubric(funcs=[episode_return, success], weights=[1.0, 0.0]),
        max_turns=max_turns,
    )
