"""Runs Gymnasium's checker on environments of a server, in text and structured form, and prints what it says.

Usage: gymnasium.test-data.py URL FORM ENV_ID...
"""

import json
import sys
import urllib.request
import warnings

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env


def call(method, url, body=None):
    request = urllib.request.Request(url, method=method, headers={"content-type": "application/json"})
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data) as reply:
        text = reply.read()
        return json.loads(text) if text else None


def space_of(document):
    kind = document["type"]
    if kind == "Discrete":
        return spaces.Discrete(document["n"], start=document["start"])
    if kind == "Text":
        return spaces.Text(
            document["max_length"], min_length=document["min_length"], charset=document["charset"]
        )
    if kind == "Box":
        low, high = document["low"], document["high"]
        return spaces.Box(
            -np.inf if low is None else low,
            np.inf if high is None else high,
            shape=tuple(document["shape"]),
            dtype=np.dtype(document["dtype"]).type,
        )
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(document["nvec"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(document["n"])
    if kind == "OneOf":
        return spaces.OneOf([space_of(inner) for inner in document["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([space_of(inner) for inner in document["spaces"]])
    if kind == "Sequence":
        return spaces.Sequence(space_of(document["space"]), stack=document["stack"])
    if kind == "Dict":
        return spaces.Dict({name: space_of(inner) for name, inner in document["spaces"].items()})
    raise ValueError(f"no space of the type {kind}")


def member_of(space, value):
    """A value in JSON as the member of a space."""
    if isinstance(space, spaces.Discrete):
        return int(value)
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        return np.array(value, dtype=space.dtype)
    if isinstance(space, spaces.OneOf):
        return (0, 0) if value is None else (1, member_of(space.spaces[1], value))
    if isinstance(space, spaces.Tuple):
        return tuple(member_of(inner, part) for inner, part in zip(space.spaces, value, strict=True))
    if isinstance(space, spaces.Sequence):
        return tuple(member_of(space.feature_space, part) for part in value)
    if isinstance(space, spaces.Dict):
        return {name: member_of(space[name], part) for name, part in value.items()}
    return value


class RemoteEnv(gym.Env):
    metadata = {"render_modes": []}

    def __init__(self, url, env_id, form):
        self.url = url
        self.form = form
        self.env_id = env_id
        document = call("GET", f"{url}/v1/envs/{env_id}")
        key = "structured_observation_space" if form == "structured" else "observation_space"
        self.observation_space = space_of(document[key]["gymnasium"])
        self.action_space = space_of(document["action_space"]["gymnasium"])
        self.session = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.session is not None:
            self.close()
        body = {"env_id": self.env_id, "observation_format": self.form}
        if seed is not None:
            body["seed"] = seed
        reply = call("POST", f"{self.url}/v1/sessions", body)
        self.session = reply["session_id"]
        return member_of(self.observation_space, reply["observation"]), reply["info"]

    def step(self, action):
        if isinstance(action, np.integer):
            action = int(action)
        reply = call("POST", f"{self.url}/v1/sessions/{self.session}/step", {"action": action})
        observation = member_of(self.observation_space, reply["observation"])
        return observation, reply["reward"], reply["terminated"], reply["truncated"], reply["info"]

    def close(self):
        if self.session is not None:
            call("DELETE", f"{self.url}/v1/sessions/{self.session}")
            self.session = None


def fault_of(url, env_id, form):
    """What the checker finds wrong, or None; then some episodes of random actions."""
    env = RemoteEnv(url, env_id, form)
    try:
        check_env(env, skip_render_check=True)
        env = RemoteEnv(url, env_id, form)
        env.action_space.seed(1)
        for seed in range(3):
            observation, _ = env.reset(seed=seed)
            for _ in range(20):
                assert observation in env.observation_space, observation
                observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
                if terminated or truncated:
                    break
            assert observation in env.observation_space, observation
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"
    finally:
        env.close()
    return None


url, form, *env_ids = sys.argv[1:]
warnings.simplefilter("ignore")
print(json.dumps({env_id: fault_of(url, env_id, form) for env_id in env_ids}))
