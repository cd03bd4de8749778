"""PPO of Stable-Baselines3 (2.9) on FrozenLake: its vectorized environment is one request for each step.

    pip install './openapi/python[gymnasium]' stable-baselines3
    npm run env-server
    python docs/examples/python/sb3_ppo.py

With one environment at a time no adapter is needed: `PPO("MlpPolicy", gymnasium.wrappers.FlattenObservation(env))`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import ragen_env
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

KINDS = 6  # what a cell of FrozenLake's grid can be


class RagenVecEnv(VecEnv):
    """A vector of ragen as Stable-Baselines3 wants one: actions from 0, the next episode in the step that ends one."""

    def __init__(self, env_id: str, num_envs: int, **settings: Any):
        self.envs = ragen_env.RagenVectorEnv(
            env_id,
            num_envs=num_envs,
            observation_format="structured",
            autoreset_mode=AutoresetMode.SAME_STEP,
            **settings,
        )
        actions = self.envs.single_action_space
        assert isinstance(actions, spaces.Discrete)
        self.first = int(actions.start)
        observation = self.envs.single_observation_space
        assert isinstance(observation, spaces.Dict)
        grid = observation["grid"]
        assert grid.shape is not None
        observations = spaces.MultiBinary(int(np.prod(grid.shape)) * KINDS)
        super().__init__(num_envs, observations, spaces.Discrete(int(actions.n)))

    def one_hot(self, observations: Any) -> Any:
        """Which kind each cell of the grid has."""
        grid = observations["grid"].reshape(len(observations["grid"]), -1)
        return np.eye(KINDS, dtype=np.int8)[grid].reshape(len(grid), -1)

    def reset(self) -> Any:
        seeds = None if self._seeds[0] is None else [int(seed or 0) for seed in self._seeds]
        self._reset_seeds()
        return self.one_hot(self.envs.reset(seed=seeds)[0])

    def step_async(self, actions: Any) -> None:
        self.actions = actions + self.first

    def step_wait(self) -> Any:
        observations, rewards, terminated, truncated, infos = self.envs.step(self.actions)
        each: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(terminated | truncated):
            last = {"grid": infos["final_obs"][index]["grid"][None]}
            each[index]["terminal_observation"] = self.one_hot(last)[0]
            each[index]["TimeLimit.truncated"] = bool(truncated[index] and not terminated[index])
        return self.one_hot(observations), rewards.astype(np.float32), terminated | truncated, each

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.envs, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("environments of a server have no attributes to set")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError("environments of a server have no methods to call")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def main(steps: int = 60_000, num_envs: int = 32) -> dict[str, float]:
    """Mean return of episodes at the start and at the end, and steps a second."""
    envs = VecMonitor(RagenVecEnv("FrozenLake-v0", num_envs, config={"success_rate": 1, "size": 3}))
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=256, learning_rate=1e-3, seed=1, device="cpu")
    model.learn(num_envs * 64)
    start = float(np.mean([episode["r"] for episode in model.ep_info_buffer]))
    model.learn(steps, reset_num_timesteps=False)
    end = float(np.mean([episode["r"] for episode in model.ep_info_buffer]))
    envs.close()
    return {"start": start, "end": end}


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
