"""Clients under failures: nothing is carried out twice, nothing is lost, and errors say what was wrong."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import Proxy, Refusing, problem

import ragen_env
from ragen_env import codec
from ragen_env.batches import Exchange, item, parts
from ragen_env.errors import BadReply

ENV = "Sokoban-v0"
QUICK = ragen_env.RetryPolicy(base_s=0.01, patience_s=10)
IMPATIENT = ragen_env.RetryPolicy(base_s=0.01, patience_s=0.3, attempts=2)


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_a_step_whose_reply_is_lost_is_taken_once(base_url: str, transport: Any) -> None:
    proxy = Proxy(base_url)
    with ragen_env.Client(proxy.url, transport=transport, retry=QUICK) as client:
        session = client.create(ENV, seed=1)
        for step in range(1, 6):
            proxy.cut_replies = 1
            assert client.step(session["session_id"], "Up")["step"] == step
        assert proxy.cuts == 5
        assert client.get(session["session_id"])["step"] == 5
        client.close_session(session["session_id"])
    envs = ragen_env.RagenVectorEnv(ENV, num_envs=4, client=ragen_env.Client(proxy.url, transport=transport, retry=QUICK))
    envs.reset(seed=1)
    proxy.cut_replies = 2
    envs.step(np.ones(4, int))
    assert [ragen_env.shared_client(base_url).get(one)["step"] for one in envs.session_ids] == [1] * 4
    proxy.close()


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_the_async_client_takes_a_step_once_as_well(base_url: str, transport: Any) -> None:
    proxy = Proxy(base_url)

    async def play() -> list[int]:
        async with ragen_env.AsyncClient(proxy.url, transport=transport, retry=QUICK) as client:
            sessions = [await client.create(ENV, seed=seed) for seed in range(5)]
            proxy.cut_replies = 2
            steps = await asyncio.gather(*(client.step(one["session_id"], "Up") for one in sessions))
            again = await asyncio.gather(*(client.step(one["session_id"], "Up") for one in sessions))
            return [one["step"] for one in [*steps, *again]]

    assert asyncio.run(play()) == [1] * 5 + [2] * 5
    assert proxy.cuts > 0
    proxy.close()


def test_a_canceled_step_is_taken_once_under_its_key(base_url: str) -> None:
    async def play() -> None:
        async with ragen_env.AsyncClient(base_url) as client:
            session = (await client.create(ENV, seed=1))["session_id"]
            for step in range(1, 4):
                task = asyncio.create_task(client.step(session, "Up", request_key=f"k{step}"))
                await asyncio.sleep(0.002 * step)
                task.cancel()
                reply = await client.step(session, "Up", request_key=f"k{step}")
                assert reply["step"] == step
            assert (await client.get(session))["step"] == 3
            with pytest.raises(ragen_env.ProblemError, match="key_reused"):
                await client.step(session, "Down", request_key="k1")

    asyncio.run(play())


@pytest.mark.parametrize("refusal", [429, 503])
def test_a_busy_server_is_waited_for_as_long_as_it_asks(refusal: int) -> None:
    body = json.dumps(problem(refusal, "too_many_requests", True)).encode()
    server = Refusing([(refusal, {"retry-after": "1"}, body), (502, {}, b"<html>bad gateway</html>")], {"step": 1})
    with ragen_env.Client(server.url, transport="http", retry=QUICK) as client:
        start = time.monotonic()
        assert client.step("s", 1)["step"] == 1
        assert time.monotonic() - start >= 1
    assert len(server.keys) == 3 and len(set(server.keys)) == 1, "repeated under one key"
    server.close()


def test_items_of_a_batch_are_repeated_alone_under_their_keys() -> None:
    items = [item("step", {"session_id": "a", "action": 1}), item("get", {"session_id": "b"}), item("step", {"session_id": "c", "action": 1})]
    batch = Exchange("http://x", items, "key")
    busy = {"ok": False, "error": problem(429, "too_many_requests", True, retry_after_s=2)}
    over = {"ok": False, "error": problem(409, "episode_over", False)}
    assert batch.key == "key"
    failure = batch.take({"results": [over, busy, busy]})
    assert failure is not None and failure.retry_after_s == 2
    assert batch.key is None
    assert json.loads(batch.items()) == [
        {"op": "get", "session_id": "b"},
        {"op": "step", "session_id": "c", "action": 1, "request_key": "key#2"},
    ]
    assert batch.take({"results": [{"ok": True, "result": "B"}, busy]}) is not None
    assert batch.take({"results": [{"ok": True, "result": "C"}]}) is None
    assert isinstance(batch.replies[0], ragen_env.ProblemError) and batch.replies[1:] == ["B", "C"]
    for value in (None, {}, {"results": []}, {"results": [1, 2, 3]}, {"results": [{"ok": False, "error": {}}] * 3}):
        with pytest.raises(BadReply):
            Exchange("http://x", items, "key").take(value)
    assert [len(part) for part in parts([items[0]] * 5000)] == [4096, 904]


def test_a_slow_server_and_a_dead_one_are_given_up(base_url: str) -> None:
    proxy = Proxy(base_url)
    for transport in ("websocket", "http"):
        client = ragen_env.Client(proxy.url, transport=transport, timeout_s=0.3, retry=IMPATIENT)
        session = client.create(ENV, seed=1)["session_id"]
        proxy.stalled = True
        with pytest.raises((ragen_env.ReplyTimeout, ragen_env.ServerUnavailable)):
            client.step(session, "Up", request_key="slow")
        proxy.stalled = False
        assert client.step(session, "Up", request_key="slow")["step"] == 1
        client.close()
        with pytest.raises(ragen_env.ClientClosed):
            client.get(session)
    proxy.close()
    dead = "http://127.0.0.1:9"
    with pytest.raises(ragen_env.ServerUnavailable, match="was not available for 0.3 s"):
        ragen_env.Client(dead, retry=IMPATIENT).list()

    async def ask() -> None:
        async with ragen_env.AsyncClient(dead, retry=IMPATIENT) as client:
            await client.list()

    with pytest.raises(ragen_env.ServerUnavailable):
        asyncio.run(ask())


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_a_server_that_was_never_there_is_named_within_5_s(transport: Any) -> None:
    dead = "http://127.0.0.1:9"

    async def ask() -> None:
        async with ragen_env.AsyncClient(dead, transport=transport) as client:
            await client.list()

    for attempt in (lambda: ragen_env.Client(dead, transport=transport).list(), lambda: asyncio.run(ask())):
        began = time.monotonic()
        with pytest.raises(ragen_env.ServerUnavailable, match="no connection: .*Start it with `npm run env-server`, or give"):
            attempt()
        assert time.monotonic() - began < 5


def test_a_restarted_server_goes_on_where_it_was_killed(server: Any) -> None:
    client = ragen_env.Client(server.url, retry=ragen_env.RetryPolicy(base_s=0.05, patience_s=60))
    envs = ragen_env.RagenVectorEnv(ENV, num_envs=8, client=client, observation_format="structured")
    twin = ragen_env.RagenVectorEnv(ENV, num_envs=8, client=client, observation_format="structured")
    envs.reset(seed=3)
    twin.reset(seed=3)
    plan = [envs.action_space.sample() for _ in range(6)]
    expected = [twin.step(actions) for actions in plan]
    results = [envs.step(actions) for actions in plan[:3]]
    server.kill()
    threading.Timer(0.5, server.start).start()
    results += [envs.step(actions) for actions in plan[3:]]
    for mine, theirs in zip(results, expected):
        assert np.array_equal(mine[0]["grid"], theirs[0]["grid"]) and np.array_equal(mine[1], theirs[1])
    assert [client.get(one)["step"] > 0 for one in envs.session_ids]
    client.close()


def test_an_environment_removed_while_in_use_is_told_clearly(base_url: str) -> None:
    client = ragen_env.Client(base_url)
    definition: Any = {"kind": "composed", "env_id": ENV}
    client.register("py/Mine-v0", definition=definition)
    env = ragen_env.RagenEnv("py/Mine-v0", client=client)
    env.reset(seed=1)
    with pytest.raises(ragen_env.ProblemError, match="environment_in_use"):
        client.remove("py/Mine-v0")
    env.close()
    client.remove("py/Mine-v0")
    with pytest.raises(ragen_env.ProblemError, match="unknown_environment"):
        env.reset(seed=1)


def test_threads_share_a_client(base_url: str) -> None:
    client = ragen_env.Client(base_url)
    steps: list[int] = []

    def play(seed: int) -> None:
        env = ragen_env.RagenEnv(ENV, client=client)
        env.reset(seed=seed)
        for _ in range(10):
            env.step("Up")
        steps.append(client.get(str(env.session_id))["step"])

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps == [10] * 8
    assert len(client._idle) <= 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_both_processes_go_on_after_a_fork(base_url: str) -> None:
    client = ragen_env.Client(base_url)
    env = ragen_env.RagenEnv(ENV, client=client)
    env.reset(seed=1)
    child = os.fork()
    if child == 0:
        own = ragen_env.RagenEnv(ENV, client=client)
        own.reset(seed=2)
        steps = [client.step(str(own.session_id), "Up")["step"] for _ in range(20)]
        client.close()
        os._exit(0 if steps == list(range(1, 21)) else 1)
    for _ in range(20):
        env.step("Up")
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert client.get(str(env.session_id))["step"] == 20
    assert client.get(str(env.session_id))["env_id"] == ENV, "the child did not close it"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("kind", ["one", "many"])
@pytest.mark.parametrize("work", ["ends", "makes its own", "closes", "closes and resets"])
def test_each_process_closes_the_sessions_that_it_opened(base_url: str, kind: str, work: str) -> None:
    program = [sys.executable, str(Path(__file__).parent / "forking.py"), kind, work, base_url]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    sessions = 1 if kind == "one" else 2
    of_child = 0 if work in ("ends", "closes") else sessions
    assert json.loads(done.stdout) == {
        "open": {"parent": [True] * sessions, "child": [False] * of_child},
        "open at the end": [False] * sessions,
    }


def test_settings_are_checked(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("ftp://x", "localhost:8080", "http://any:secret@x"):
        with pytest.raises(ValueError, match="base_url"):
            ragen_env.Client(wrong)
    with pytest.raises(ValueError, match="timeout_s"):
        ragen_env.Client(base_url, timeout_s=0)
    monkeypatch.setenv("RAGEN_TOKEN", "secret")
    client = ragen_env.Client(base_url)
    assert client.settings.headers == {"authorization": "Bearer secret"}
    assert "secret" not in repr(client.settings)
    assert json.loads(codec.dumps({"a": np.int64(1), "b": np.arange(2)})) == {"a": 1, "b": [0, 1]}
    for value in (float("nan"), object(), {1, 2}):
        with pytest.raises((ValueError, TypeError)):
            codec.dumps(value)


def test_problems_survive_pickling(base_url: str) -> None:
    import pickle

    with pytest.raises(ragen_env.ProblemError) as raised:
        ragen_env.Client(base_url).get("nothing")
    again = pickle.loads(pickle.dumps(raised.value))
    assert again.code == raised.value.code == "unknown_session" and str(again) == str(raised.value)


def test_something_that_is_no_server_is_named(base_url: str) -> None:
    server = Refusing([(200, {}, b"<html>hello</html>")])
    with pytest.raises(BadReply, match="is it an environment server"):
        ragen_env.Client(server.url, transport="http", retry=IMPATIENT).list()
    with pytest.raises(ragen_env.RagenError):
        ragen_env.Client(server.url, retry=IMPATIENT).list()
    server.close()
