"""A bandit with two arms as users of OpenEnv write an environment: `python bandit.py PORT SESSIONS` serves it."""

import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Pull(Action):
    action: str


class Report(Observation):
    text: str


class Bandit(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Report:
        self.random = random.Random(seed)
        self.steps = 0
        return Report(text="There are two arms: Phoenix and Dragon. Pull one.")

    def step(self, action: Pull, timeout_s: float | None = None, **more: Any) -> Report:
        self.steps += 1
        reward = 0.1 if action.action == "Phoenix" else float(self.random.random() < 0.25)
        return Report(text=f"You pulled {action.action}.", reward=reward, done=True)

    @property
    def state(self) -> State:
        return State(step_count=self.steps)


app = create_fastapi_app(Bandit, Pull, Report, max_concurrent_envs=int(sys.argv[2]))
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", backlog=8192)
