"""Gymnasium's own checks, for every environment of the server."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence

import ragen_env
from ragen_env.spaces import AnyText, Json, json_of, member_of, space_of

STEPS = 20


@pytest.fixture(scope="module")
def names(base_url: str) -> list[str]:
    return ragen_env.register(base_url)


def test_register_names_every_environment(base_url: str, names: list[str]) -> None:
    client = ragen_env.shared_client(base_url)
    ids = [one["env_id"] for one in client.list_environments()["environments"]]
    assert names == [f"ragen/{env_id}" for env_id in ids]
    assert ragen_env.register(base_url) == names, "again"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert gymnasium.make("ragen/Sokoban").unwrapped.spec is not None


@pytest.mark.parametrize("form", ["text", "structured"])
def test_every_environment_passes_check_env(names: list[str], form: str) -> None:
    faults: dict[str, Any] = {}
    for name in names:
        try:
            check_one(name, form)
        except Exception as fault:
            faults[name] = f"{type(fault).__name__}: {fault}"
    assert faults == {}


def check_one(name: str, form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env: Any = gymnasium.make(name, observation_format=form).unwrapped
        check_env(env, skip_render_check=form != "text")
        env = gymnasium.make(name, observation_format=form)
    env.action_space.seed(1)
    for seed in range(2):
        observation, _ = env.reset(seed=seed)
        for _ in range(STEPS):
            assert observation in env.observation_space, observation
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                break
        assert observation in env.observation_space, observation
    env.close()


def test_a_seed_decides_all_episodes_that_follow(base_url: str) -> None:
    def episodes() -> list[Any]:
        env = ragen_env.RagenEnv("FrozenLake-v0", base_url)
        return [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]

    first = episodes()
    assert first == episodes()
    assert len(set(first)) > 1


def test_snapshots_and_clones_have_the_same_future(base_url: str) -> None:
    env = ragen_env.RagenEnv("FrozenLake-v0", base_url, config={"success_rate": 0.4}, observation_format="structured")
    env.reset(seed=5)
    snapshot = env.snapshot()
    (clone,) = env.clone()
    future = [*(env.step(2) for _ in range(3)), env.reset()]
    env.restore(snapshot)
    assert data_equivalence(future, [*(env.step(2) for _ in range(3)), env.reset()])
    assert data_equivalence(future, [*(clone.step(2) for _ in range(3)), clone.reset()])


def test_render_gives_text_and_pictures(base_url: str) -> None:
    env = ragen_env.RagenEnv("Sokoban-v0", base_url, render_mode="rgb_array")
    env.reset(seed=1)
    frame = env.render()
    assert frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3 and frame.std() > 0
    env = ragen_env.RagenEnv("Sokoban-v0", base_url, render_mode="ansi")
    env.reset(seed=1)
    assert "#" in env.render()
    with pytest.raises(ValueError, match="render modes ansi"):
        ragen_env.RagenEnv("Sokoban-v0", base_url, render_mode="human")


def test_errors_say_what_would_be_right(base_url: str) -> None:
    with pytest.raises(ragen_env.ProblemError, match="unknown_environment"):
        ragen_env.RagenEnv("Sokobann-v0", base_url)
    with pytest.raises(ragen_env.ProblemError, match="/config"):
        ragen_env.RagenEnv("Sokoban-v0", base_url, config={"color": "red"})
    with pytest.raises(ValueError, match="observation formats text"):
        ragen_env.RagenEnv("Sokoban-v0", base_url, observation_format="smell")
    env = ragen_env.RagenEnv("Sokoban-v0", base_url)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(1)
    env.reset(seed=1)
    with pytest.raises(ragen_env.ProblemError, match="invalid_action"):
        env.step({"fly": 1})
    with pytest.raises(ValueError):
        env.step(float("nan"))


def test_an_environment_closed_by_another_is_opened_again_by_reset(base_url: str) -> None:
    env = ragen_env.RagenEnv("FrozenLake-v0", base_url)
    first, _ = env.reset(seed=1)
    assert env.session_id
    ragen_env.shared_client(base_url).close_session(env.session_id)
    with pytest.raises(ragen_env.ProblemError, match="session_closed"):
        env.step(1)
    assert env.reset(seed=1)[0] == first
    env.step(1)
    env.close()
    assert env.reset(seed=1)[0] == first, "after close()"


def test_spaces_take_values_both_ways() -> None:
    document = {
        "type": "Dict",
        "spaces": {
            "at": {"type": "MultiDiscrete", "nvec": [4, 4]},
            "maybe": {"type": "OneOf", "spaces": [{"type": "Discrete", "n": 1, "start": 0}, {"type": "Discrete", "n": 3, "start": 0}]},
            "list": {"type": "Sequence", "space": {"type": "Discrete", "n": 9, "start": 0}, "stack": False},
            "pair": {"type": "Tuple", "spaces": [{"type": "MultiBinary", "n": 2}, {"type": "Box", "low": None, "high": 1, "shape": [], "dtype": "float64"}]},
            "any": {"type": "Text", "min_length": 0, "max_length": 9, "charset": None},
            "free": {"type": "Json"},
        },
    }
    space = space_of(document)
    value = {"at": [1, 2], "maybe": 2, "list": [3, 4], "pair": [[0, 1], 0.5], "any": "ü", "free": {"x": [1]}}
    member = member_of(space, value)
    assert space.contains(member)
    assert json_of(space, member) == value
    assert not AnyText(2).contains("abc") and not Json().contains(object())
    with pytest.raises(ValueError, match="no space of the type 'Quantum'"):
        space_of({"type": "Quantum"})
