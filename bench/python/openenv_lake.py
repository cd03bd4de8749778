"""Gymnasium's FrozenLake behind OpenEnv's own server. Usage: openenv_lake.py PORT MAX_ENVIRONMENTS"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Move(Action):
    action: int


class Cell(Observation):
    cell: int


class Lake(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._env = gymnasium.make("FrozenLake-v1")
        self._steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Cell:
        cell, _info = self._env.reset(seed=seed)
        self._steps = 0
        return Cell(cell=int(cell), reward=0.0, done=False)

    def step(self, action: Move, timeout_s: float | None = None, **_: Any) -> Cell:
        cell, reward, terminated, truncated, _info = self._env.step(action.action)
        self._steps += 1
        return Cell(cell=int(cell), reward=float(reward), done=terminated or truncated)

    @property
    def state(self) -> State:
        return State(episode_id=None, step_count=self._steps)


if __name__ == "__main__":
    app = create_fastapi_app(Lake, Move, Cell, max_concurrent_envs=int(sys.argv[2]))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
