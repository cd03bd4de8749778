"""Families that play by Gymnasium's interface: MiniGrid, Atari (ALE), NetHack (NLE) and Craftax."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np

from .families import MissingPart, number_of, one_of

#: 108,000 frames, four a step: half an hour of play, the field's limit of an episode.
_ATARI_STEPS = 27_000


def made(env_id: str, **kwargs: Any) -> Any:
    """Any id of Gymnasium's registry, also with a module before it."""
    try:
        return gym.make(env_id, **kwargs)
    except (gym.error.UnregisteredEnv, gym.error.DependencyNotInstalled) as error:
        raise MissingPart(str(error)) from None


def minigrid(name: str, **kwargs: Any) -> Any:
    import minigrid  # noqa: F401 - it registers its environments

    return made(name, **kwargs)


def ale(name: str, **kwargs: Any) -> Any:
    """Atari games. A text cannot hold their pixels, so they show the 128 bytes of the console's memory."""
    import ale_py

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gym.register_envs(ale_py)
    env_id = name if name.startswith("ALE/") else f"ALE/{name}"
    env_id = env_id if "-v" in env_id else f"{env_id}-v5"
    env = made(env_id, **{"obs_type": "ram", **kwargs})
    base: Any = env.unwrapped
    base.world_name, base.max_steps = env_id.split("/")[1], _ATARI_STEPS
    base.instruction = (
        f"Play {env_id.split('/')[1]} on the Atari 2600. You see the 128 bytes of its memory; the reward is the score."
    )
    return env


class NetHack(gym.Wrapper[Any, Any, Any, Any]):
    """Play NetHack: explore the dungeon, stay alive and raise your score. You see the screen of 24 lines."""

    def __init__(self, env: gym.Env[Any, Any]):
        super().__init__(env)
        actions = env.unwrapped.actions  # type: ignore[attr-defined]
        often = Counter(action.name for action in actions)
        names = [
            action.name if often[action.name] == 1 or "Longer" not in type(action).__name__ else f"FAR_{action.name}"
            for action in actions
        ]
        env.unwrapped.action_names = names  # type: ignore[attr-defined]
        env.unwrapped.instruction = type(self).__doc__  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            core = np.random.default_rng(seed).integers(2**31, size=2)
            self.env.unwrapped.seed(int(core[0]), int(core[1]), reseed=False)  # type: ignore[attr-defined]
        observation, _ = self.env.reset(options=options)
        return _screen(observation), {}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return _screen(observation), reward, terminated, truncated, {"success": bool(info.get("is_ascended"))}


def _screen(observation: Any) -> str:
    lines = (bytes(line).decode("latin-1").rstrip() for line in observation["tty_chars"])
    return "\n".join(lines).strip("\n")


def nle(name: str, **kwargs: Any) -> Any:
    import nle  # noqa: F401 - it registers its environments

    return NetHack(made(name, **{"observation_keys": ("tty_chars", "blstats", "message"), **kwargs}))


class Craftax:
    """Craftax, with the text of its state.

    JAX compiles the first reset and step of a process, which takes up to a minute; the functions are shared by its episodes.
    """

    max_steps = 10_000
    instruction = "Survive in Craftax: gather, craft, fight and go down. A new achievement earns its reward."

    def __init__(self, name: str):
        self.world_name = name
        self.reset_fn, self.step_fn, self.text, self.actions, self.params = _compiled(name)

    def reset(self, seed: int | None = None) -> Any:
        import jax

        self.key = jax.random.PRNGKey(number_of(seed))
        _, self.state = self.reset_fn(self._key())
        return self.text(self.state), {}

    def step(self, action: str) -> Any:
        _, self.state, reward, done, _ = self.step_fn(self._key(), self.state, self.actions.index(action))
        return self.text(self.state), float(reward), bool(done), False, {"success": False}

    def _key(self) -> Any:
        import jax

        self.key, key = jax.random.split(self.key)
        return key


_COMPILED: dict[str, Any] = {}


def _compiled(name: str) -> Any:
    """The functions of an environment, compiled once in a process."""
    if name in _COMPILED:
        return _COMPILED[name]
    import jax
    from craftax.craftax.constants import Action
    from craftax.craftax.renderer import render_craftax_text
    from craftax.craftax_env import make_craftax_env_from_name

    one_of("craftax (with a text for its state)", name, ["Craftax-Symbolic-v1"])
    env = make_craftax_env_from_name(name, auto_reset=False)
    params = env.default_params
    reset = jax.jit(lambda key: env.reset(key, params))
    step = jax.jit(lambda key, state, action: env.step(key, state, action, params))
    _, state = reset(jax.random.PRNGKey(0))
    step(jax.random.PRNGKey(0), state, 0)
    _COMPILED[name] = (reset, step, render_craftax_text, [action.name for action in Action], params)
    return _COMPILED[name]
