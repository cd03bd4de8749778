"""An environment for SkyRL-gym (0.4): every environment of a server as a text environment.

    skyrl_gym.register("ragen", entry_point="skyrl_environment:RagenTextEnv")

A row of the data set has the seed in its extras. The answer of the model goes to the server as it is.
"""

from __future__ import annotations

from typing import Any

import ragen_env
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

WRAPPER: Any = {"name": "action_text", "options": {"max_actions": 5, "think": False}}
FORMAT = "Answer with <answer>your action</answer>; several are separated by ||."


class RagenTextEnv(BaseTextEnv):  # type: ignore[misc]
    def __init__(self, env_config: dict[str, Any], extras: dict[str, Any] | None = None):
        super().__init__()
        self._client = ragen_env.Client(env_config.get("base_url"))
        self._session = {"env_id": env_config["env_id"], "config": env_config.get("config"), "wrappers": [WRAPPER]}
        self._seed = int((extras or {}).get("seed", 0))
        self._id = ""

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        described = self._client.describe_environment(self._session["env_id"], config=self._session["config"])
        session = self._client.create(**self._session, seed=self._seed)
        self._id = session["session_id"]
        content = f"{described['instruction']}\n{FORMAT}\n\n{session['observation']}"
        return [*prompt, {"role": "user", "content": content}], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        reply = self._client.step(self._id, action)
        done = reply["terminated"] or reply["truncated"]
        seen = [] if done else [{"role": "user", "content": str(reply["observation"])}]
        return BaseTextEnvStepOutput(observations=seen, reward=reply["reward"], done=done, metadata=dict(reply["info"]))

    def close(self) -> None:
        if self._id:
            self._client.close_session(self._id)
            self._id = ""
        self._client.close()
