"""PPO of Ray's RLlib on FrozenLake, each environment runner with a replica of the server.

    pip install './openapi/python[gymnasium]' 'ray[rllib]' torch
    npm run env-server -- --port 8081 & npm run env-server -- --port 8082 &
    python docs/examples/python/rllib_ppo.py http://127.0.0.1:8081 http://127.0.0.1:8082
"""

from __future__ import annotations

import json
import sys
from typing import Any

import gymnasium
import numpy as np
import ragen_env
import ray
from gymnasium import spaces
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

KINDS = 6  # what a cell of FrozenLake's grid can be


class OneHot(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Which kind each cell of the grid has."""

    def __init__(self, env: gymnasium.Env[Any, Any]):
        super().__init__(env)
        grid = env.observation_space["grid"]  # type: ignore[index]
        self.observation_space = spaces.Box(0, 1, (int(np.prod(grid.shape)) * KINDS,), np.float32)

    def observation(self, observation: Any) -> Any:
        return np.eye(KINDS, dtype=np.float32)[observation["grid"].reshape(-1)].reshape(-1)


def make_lake(config: Any) -> gymnasium.Env[Any, Any]:
    """An environment of the replica that belongs to the runner; runner 0 is the algorithm's own process."""
    urls = config["urls"]
    url = urls[(max(1, config.worker_index) - 1) % len(urls)]
    lake = ragen_env.RagenEnv("FrozenLake-v0", url, observation_format="structured", config=config["lake"])
    # RLlib counts actions from 0, the server from 1.
    return gymnasium.wrappers.TransformAction(OneHot(lake), lambda action: int(action) + 1, spaces.Discrete(4))


def main(urls: list[str], iterations: int = 10) -> list[float]:
    """The mean return of each iteration."""
    register_env("ragen/FrozenLake", make_lake)
    config = (
        PPOConfig()
        .environment("ragen/FrozenLake", env_config={"urls": urls, "lake": {"size": 3, "success_rate": 1}})
        .env_runners(num_env_runners=len(urls), num_envs_per_env_runner=8, num_cpus_per_env_runner=0.5)
        .training(train_batch_size=1024, lr=1e-3)
    )
    algorithm = config.build_algo()
    returns = [float(algorithm.train()["env_runners"]["episode_return_mean"]) for _ in range(iterations)]
    algorithm.stop()
    return returns


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    print(json.dumps(main(sys.argv[1:])))
    ray.shutdown()
