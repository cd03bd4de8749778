"""The vectorized environment against Gymnasium's own over the same environments."""

from __future__ import annotations

import gc
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import ragen_env
from ragen_env.vector_env import infos_of

NUM = 3
ENV = "FrozenLake-v0"
KWARGS: dict[str, Any] = {"wrappers": [{"name": "time_limit", "options": {"max_steps": 4}}]}


def pair(base_url: str, mode: AutoresetMode, form: str, env_id: str = ENV, **kwargs: Any) -> tuple[Any, Any]:
    sync = SyncVectorEnv(
        [lambda: ragen_env.RagenEnv(env_id, base_url, observation_format=form, **kwargs) for _ in range(NUM)],
        autoreset_mode=mode,
    )
    ours = ragen_env.RagenVectorEnv(
        env_id, base_url, num_envs=NUM, autoreset_mode=mode, observation_format=form, **kwargs
    )
    return sync, ours


@pytest.mark.parametrize("form", ["text", "structured"])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_it_gives_what_gymnasiums_vector_gives(base_url: str, mode: AutoresetMode, form: str) -> None:
    sync, ours = pair(base_url, mode, form, **KWARGS)
    assert ours.metadata["autoreset_mode"] is mode
    assert ours.single_observation_space == sync.single_observation_space
    assert ours.observation_space == sync.observation_space and ours.action_space == sync.action_space
    assert data_equivalence(ours.reset(seed=1), sync.reset(seed=1), exact=True)
    ours.action_space.seed(1)
    for step in range(11):
        actions = ours.action_space.sample()
        mine, theirs = ours.step(actions), sync.step(actions)
        assert mine[0] in ours.observation_space
        if mode is AutoresetMode.SAME_STEP and form == "text":
            # The server draws the next episode: all but its first observation must be the same.
            assert data_equivalence(mine[1:], theirs[1:], exact=True), step
            if (mine[2] | mine[3]).any():
                assert "final_obs" in mine[4]
                return
            continue
        assert data_equivalence(mine, theirs, exact=True), step
        if mode is AutoresetMode.DISABLED and (mine[2] | mine[3]).any():
            mask = {"reset_mask": mine[2] | mine[3]}
            assert data_equivalence(ours.reset(options=dict(mask)), sync.reset(options=dict(mask)), exact=True)
    ours.close()
    sync.close()


@pytest.mark.parametrize("env_id", ["Sokoban-v0", "Sudoku-v0", "WebShop-v0", "Bandit-v0"])
def test_other_spaces_are_batched_alike(base_url: str, env_id: str) -> None:
    sync, ours = pair(base_url, AutoresetMode.NEXT_STEP, "structured", env_id)
    assert data_equivalence(ours.reset(seed=[4, 5, 6]), sync.reset(seed=[4, 5, 6]), exact=True)
    sample = [sync.single_action_space.sample() for _ in range(NUM)]
    actions = np.array(sample) if isinstance(ours.single_action_space, gymnasium.spaces.Discrete) else tuple(sample)
    assert data_equivalence(ours.step(actions), sync.step(actions), exact=True)


def test_a_step_is_one_request(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ragen_env.Client(base_url)
    envs = ragen_env.RagenVectorEnv(ENV, num_envs=16, client=client, wrappers=KWARGS["wrappers"])
    envs.reset(seed=1)
    attempts: list[Any] = []
    attempt = client._attempt

    def counted(batch: Any, timeout_s: float) -> Any:
        attempts.append(batch)
        return attempt(batch, timeout_s)

    monkeypatch.setattr(client, "_attempt", counted)
    for _ in range(7):
        envs.step(envs.action_space.sample())
    assert len(attempts) == 7
    monkeypatch.undo()
    ids = set(envs.session_ids)
    envs.close()
    assert not ids & {one["session_id"] for one in client.list(limit=1000)["sessions"]}


def test_it_works_with_gymnasiums_wrappers_and_make_vec(base_url: str) -> None:
    ragen_env.register(base_url)
    envs = gymnasium.make_vec(f"ragen/{ENV}", num_envs=4, observation_format="structured")
    assert isinstance(envs, ragen_env.RagenVectorEnv) and envs.spec is not None
    recorded = RecordEpisodeStatistics(envs)
    recorded.reset(seed=1)
    seen = False
    for _ in range(60):
        infos = recorded.step(recorded.action_space.sample())[4]
        seen = seen or "episode" in infos
    assert seen
    recorded.close()
    sync = gymnasium.make_vec(f"ragen/{ENV}", num_envs=2, vectorization_mode="sync")
    assert isinstance(sync, SyncVectorEnv)
    sync.close()


def test_snapshots_clones_and_pictures_of_all_at_once(base_url: str) -> None:
    envs = ragen_env.RagenVectorEnv(ENV, base_url, num_envs=NUM, render_mode="rgb_array", observation_format="structured")
    envs.reset(seed=2)
    snapshots = envs.snapshot()
    clone = envs.clone()
    plan = [envs.action_space.sample() for _ in range(5)]
    future = [envs.step(actions) for actions in plan]
    envs.restore(snapshots)
    assert data_equivalence(future, [envs.step(actions) for actions in plan])
    assert data_equivalence(future, [clone.step(actions) for actions in plan])
    frames = envs.render()
    assert frames is not None and len(frames) == NUM and frames[0].shape[2] == 3


def test_wrong_use_is_refused(base_url: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ragen_env.RagenVectorEnv(ENV, base_url, num_envs=0)
    ragen_env.RagenVectorEnv.__new__(ragen_env.RagenVectorEnv).close()  # as Gymnasium does after such a refusal
    envs = ragen_env.RagenVectorEnv(ENV, base_url, num_envs=NUM)
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step(np.ones(NUM, int))
    envs.reset(seed=1)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        envs.step(np.ones(2, int))
    with pytest.raises(ValueError, match="each of 3"):
        envs.step(["Up", "Up"])
    with pytest.raises(ValueError, match="seed for each"):
        envs.reset(seed=[1])
    with pytest.raises(ValueError, match="reset_mask"):
        envs.reset(options={"reset_mask": np.zeros(NUM, bool)})
    with pytest.raises(ragen_env.ProblemError, match="invalid_action"):
        envs.step([{"fly": 1}] * NUM)
    envs.step(["Up", "Left", "Down"])


def test_sessions_that_are_gone_are_opened_again_by_reset(base_url: str) -> None:
    envs = ragen_env.RagenVectorEnv(ENV, base_url, num_envs=NUM)
    first, _ = envs.reset(seed=1)
    ragen_env.shared_client(base_url).close_session(envs.session_ids[1])
    with pytest.raises(ragen_env.ProblemError, match="session_closed"):
        envs.step(np.ones(NUM, int))
    assert envs.reset(seed=1)[0] == first
    envs.step(np.ones(NUM, int))


def test_environments_that_nobody_closed_are_closed_later(base_url: str) -> None:
    client = ragen_env.Client(base_url)
    ids: set[str] = set()
    for seed in range(1000):
        envs = ragen_env.RagenVectorEnv("Bandit-v0", num_envs=2, client=client)
        envs.reset(seed=seed)
        ids.update(envs.session_ids)
        del envs
    gc.collect()
    assert len(ids) == 2000 and len(client._idle) == 1
    assert not ids & {one["session_id"] for one in client.list(limit=1000)["sessions"]}


def test_the_last_environment_of_a_shared_client_is_closed_later_as_well(base_url: str) -> None:
    # Nobody else has a client of these settings.
    env = ragen_env.RagenEnv("Bandit-v0", base_url, transport="http")
    env.reset(seed=1)
    session_id = str(env.session_id)
    del env
    gc.collect()
    other = ragen_env.RagenEnv("Bandit-v0", base_url, transport="http")
    other.reset(seed=2)
    with pytest.raises(ragen_env.ProblemError, match="session_closed"):
        ragen_env.shared_client(base_url).get(session_id)


def test_infos_are_batched_as_gymnasium_does_it() -> None:
    infos: list[dict[str, Any]] = [
        {"success": True, "n": 1, "name": "a", "inner": {"x": 1.5}, "list": [1]},
        {},
        {"success": False, "n": 3, "name": "b", "inner": {"x": 2.5, "y": True}, "list": [2, 3]},
    ]
    vector: VectorEnv[Any, Any, Any] = VectorEnv()
    vector.num_envs = 3
    theirs: dict[str, Any] = {}
    for index, info in enumerate(infos):
        theirs = vector._add_info(theirs, info, index)
    assert data_equivalence(infos_of(infos), theirs, exact=True)
    assert infos_of([{"r": 0}, {"r": 0.5}])["r"].tolist() == [0, 0.5]
    assert infos_of([{"big": 2**70}, {"big": None}])["big"].tolist() == [2**70, None]
