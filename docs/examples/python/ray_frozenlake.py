"""Ray: N workers collect FrozenLake from N replicas of the server, and a learner improves one table of values (Q-learning).

    pip install './openapi/python[gymnasium]' ray
    npm run env-server -- --port 8081 & npm run env-server -- --port 8082 &
    python docs/examples/python/ray_frozenlake.py http://127.0.0.1:8081 http://127.0.0.1:8082

A replica belongs to a worker, so that no two of them wait for each other; on a cluster give each node's worker the
address of a server on its node. `rllib_ppo.py` has the same environment for RLlib.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import ragen_env
import ray

CONFIG = {"map": "4x4", "success_rate": 1}
CELLS, ACTIONS = 16, 4


class Collector:
    """Plays a vector of environments on one server, and gives transitions."""

    def __init__(self, url: str, num_envs: int, seed: int):
        self.envs = ragen_env.RagenVectorEnv(
            "FrozenLake-v0", url, num_envs=num_envs, observation_format="structured", config=CONFIG
        )
        self.random = np.random.default_rng(seed)
        self.states = cells(self.envs.reset(seed=seed)[0])
        self.resets = np.zeros(num_envs, bool)

    def collect(self, values: Any, steps: int, greed: float) -> list[tuple[Any, ...]]:
        """(states, actions, rewards, next states, ends) of steps; those that only begin an episode are left out."""
        transitions = []
        for _ in range(steps):
            explore = self.random.random(len(self.states)) > greed
            any_action = self.random.integers(ACTIONS, size=len(self.states))
            actions = np.where(explore, any_action, values[self.states].argmax(1))
            observations, rewards, ends, cuts, _infos = self.envs.step(actions + 1)
            after, played = cells(observations), ~self.resets
            transitions.append(
                tuple(part[played] for part in (self.states, actions, rewards, after, ends))
            )
            self.states, self.resets = after, ends | cuts
        return transitions


def cells(observations: Any) -> Any:
    player = observations["player"]
    return player[:, 0] * observations["cols"] + player[:, 1]


def main(urls: list[str], rounds: int = 10, num_envs: int = 32, steps: int = 40) -> dict[str, Any]:
    """The mean reward of an episode in the first and the last round, and the number of transitions."""
    values = np.zeros((CELLS, ACTIONS))
    collector: Any = ray.remote(num_cpus=0.5)(Collector)
    workers = [collector.remote(url, num_envs, seed) for seed, url in enumerate(urls)]
    returns, count = [], 0
    for number in range(rounds):
        greed = max(0.0, number / max(1, rounds - 1) - 0.5) * 1.8  # half of the rounds play at random
        batches = ray.get([worker.collect.remote(values, steps, greed) for worker in workers])
        rewards = ends = 0.0
        for batch in batches:
            for states, actions, reward, after, over in batch:
                # Nothing here is left to chance, so that what happened is the value itself.
                values[states, actions] = reward + 0.9 * values[after].max(1) * ~over
                rewards, ends, count = rewards + reward.sum(), ends + over.sum(), count + len(states)
        returns.append(float(rewards / max(1.0, ends)))
    return {"workers": len(workers), "transitions": count, "first": returns[0], "last": returns[-1]}


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    print(json.dumps(main(sys.argv[1:])))
    ray.shutdown()
