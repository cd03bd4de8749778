"""``ragen-env serve``: what strangers' environments do to it, and what it says when it cannot start."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from conftest import Server

import ragen_env
from ragen_env.service import lanes
from ragen_env.service.run import _Server

TESTS = Path(__file__).parent
HOSTILE = "hostile_world:Hostile"


class Service:
    """A running ``ragen-env serve``."""

    def __init__(self, *arguments: str, cwd: Path = TESTS):
        command = [sys.executable, "-m", "ragen_env.cli", "serve", *arguments]
        if "--port" not in arguments:
            command += ["--port", "0"]
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.said: list[str] = []
        self.url = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if " is served at " in line:
                self.url = line.split(" is served at ")[1].split()[0]
            if line.startswith(("Register it", "  npm run trainer -- train")):
                break
        self.http = httpx.Client(base_url=self.url or "http://127.0.0.1:1", timeout=30)

    def ask(self, route: str, **body: Any) -> tuple[int, dict[str, Any]]:
        reply = self.http.post(route, json=body)
        return reply.status_code, reply.json()

    def reset(self, session_id: str, seed: int = 0) -> None:
        assert self.ask("/reset", session_id=session_id, seed=seed)[0] == 200

    def step(self, session_id: str, action: Any = "wait", **more: Any) -> tuple[int, dict[str, Any]]:
        return self.ask("/step", session_id=session_id, action=action, **more)

    def stop(self, sent: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(sent)
        try:
            rest, _ = self.process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, "\n".join([*self.said, rest])


@pytest.fixture(scope="module", params=[0, 2], ids=["threads", "workers"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    one = Service(HOSTILE, "--workers", str(request.param), "--timeout", "1")
    yield one
    one.stop()


TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture()
def guarded(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that wants a token."""
    server.kill()
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    monkeypatch.setenv("RAGEN_TOKENS", json.dumps([{"name": "me", "sha256": digest, "scopes": ["play", "register"]}]))
    server.start()
    return server


@pytest.fixture()
def start() -> Iterator[Callable[..., Service]]:
    started: list[Service] = []

    def begin(*arguments: str, **more: Any) -> Service:
        started.append(Service(*arguments, **more))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def test_a_reply_does_not_wait_for_its_second_segment(service: Service) -> None:
    service.reset("quick")
    medians = []
    for _ in range(3):
        times = []
        for _ in range(21):
            began = time.perf_counter()
            assert service.step("quick")[0] == 200
            times.append(time.perf_counter() - began)
        medians.append(statistics.median(times))
    # The wait is 40 ms in every round; a busy machine alone slows down steps, by less.
    assert min(medians) < 0.030, medians


def test_an_environment_that_raises_ends_its_episode_only(service: Service) -> None:
    service.reset("good")
    service.reset("bad")
    assert service.step("bad", "raise") == (
        422,
        {"detail": "Hostile.step raised RuntimeError: the dice are gone (hostile_world.py:32)"},
    )
    status, said = service.step("bad")
    assert status == 410 and "the dice are gone" in said["detail"]
    assert service.step("good")[1]["observation"] == "1"


def test_sys_exit_in_an_environment_ends_its_episode_only(service: Service) -> None:
    service.reset("good")
    service.reset("leaving")
    status, said = service.step("leaving", "exit")
    assert status == 422 and "SystemExit: 3" in said["detail"]
    assert service.step("good")[0] == 200


def test_prints_do_not_disturb_replies(service: Service) -> None:
    service.reset("loud")
    assert service.step("loud", "print")[1]["observation"] == "1"


def test_values_of_numpy_and_nan_have_a_form(service: Service) -> None:
    service.reset("numpy")
    status, reply = service.step("numpy", "numpy")
    assert status == 200
    assert reply["observation"] == {
        "text": "row: 0 1 2\nx: 0.5\nnan: nan\nflag: true",
        "structured": {"row": [0, 1, 2], "x": 0.5, "nan": None, "flag": True},
    }
    assert (reply["reward"], reply["terminated"], reply["info"]) == (0.25, False, {"n": 3, "success": False})
    status, said = service.step("numpy", "nan reward")
    assert status == 422 and "the reward nan" in said["detail"]


def test_a_step_that_returns_nothing_is_refused(service: Service) -> None:
    service.reset("none")
    status, said = service.step("none", "nothing")
    assert status == 422 and "must return (observation, reward, terminated, truncated, info)" in said["detail"]


def test_long_observations_pass_up_to_the_limit(service: Service) -> None:
    service.reset("long")
    assert len(service.step("long", "long 200000")[1]["observation"]) == 200_000
    status, said = service.step("long", "long 5000000")
    assert status == 422 and "250,000 are the limit" in said["detail"]


def test_sessions_that_are_not_there_are_refused_with_the_reason(service: Service) -> None:
    assert service.step("never") == (404, {"detail": "there is no session 'never': POST /reset opens it"})
    service.reset("ended")
    assert service.step("ended", "end")[1]["info"] == {"success": True}
    assert service.step("ended")[1]["detail"] == "session 'ended' has ended: its episode is over"
    service.reset("closed")
    assert service.ask("/close", session_id="closed") == (200, {})
    assert service.ask("/close", session_id="closed") == (200, {})
    assert service.step("closed")[1]["detail"] == "session 'closed' has ended: it was closed"


def test_a_second_reset_begins_the_episode_again(service: Service) -> None:
    service.reset("twice", seed=1)
    assert service.step("twice", step=1)[1]["observation"] == "1"
    assert service.ask("/reset", session_id="twice", seed=2)[1]["observation"] == "seed 2"
    assert service.step("twice", step=1)[1]["observation"] == "1"
    assert service.step("twice", step=3) == (409, {"detail": "step 3 came where step 2 was expected"})


@pytest.mark.parametrize(
    "route,body,said",
    [
        ("/reset", "{", "not JSON"),
        ("/reset", "[]", "must be a JSON object"),
        ("/reset", "[" * 100_000, "not JSON"),
        ("/reset", "{}", "session_id must be a string"),
        ("/reset", '{"session_id": "s", "seed": "7"}', "seed must be a whole number"),
        ("/step", '{"session_id": "s"}', "has no action"),
        ("/step", '{"session_id": "s", "action": "' + "x" * 1_200_000 + '"}', "more than 1,100,000 bytes"),
    ],
)
def test_requests_outside_the_protocol_are_refused(service: Service, route: str, body: str, said: str) -> None:
    reply = service.http.post(route, content=body)
    assert reply.status_code == 400 and said in reply.json()["detail"]


class Connections:
    """A few connections that many sessions share; httpx takes seconds for a thousand requests that wait."""

    def __init__(self, url: str):
        self._port = int(url.rsplit(":", 1)[1])
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def open(self, count: int) -> None:
        for _ in range(count):
            self._free.put_nowait(await asyncio.open_connection("127.0.0.1", self._port))

    async def ask(self, path: str, body: dict[str, Any]) -> Any:
        reader, writer = await self._free.get()
        content = json.dumps(body).encode()
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        reply = await reader.readexactly(int(head.split(b"content-length:")[1].split()[0]))
        self._free.put_nowait((reader, writer))
        return json.loads(reply)


def test_a_thousand_sessions_play_at_once(service: Service) -> None:
    ids = [f"m{i}" for i in range(1000)]

    async def play() -> None:
        connections = Connections(service.url)
        await connections.open(128)
        begun = await asyncio.gather(*(connections.ask("/reset", {"session_id": one, "seed": 1}) for one in ids))
        assert [reply["observation"] for reply in begun] == ["seed 1"] * 1000
        assert service.http.get("/").json()["sessions"] >= 1000
        for step in ("1", "2", "3"):
            body = {"action": "wait", "step": int(step)}
            taken = await asyncio.gather(*(connections.ask("/step", {"session_id": one, **body}) for one in ids))
            assert [reply["observation"] for reply in taken] == [step] * 1000
        await asyncio.gather(*(connections.ask("/close", {"session_id": one}) for one in ids))

    asyncio.run(play())


def test_steps_of_one_session_are_taken_one_after_another(service: Service) -> None:
    async def play() -> list[str]:
        async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
            await http.post("/reset", json={"session_id": "crowd", "seed": 0})
            body = {"session_id": "crowd", "action": "wait"}
            replies = await asyncio.gather(*(http.post("/step", json=body) for _ in range(20)))
            return [reply.json()["observation"] for reply in replies]

    assert sorted(map(int, asyncio.run(play()))) == list(range(1, 21))


def test_an_environment_that_hangs_holds_up_no_other_session(start: Callable[..., Service]) -> None:
    service = start(HOSTILE, "--timeout", "1")

    async def play() -> tuple[httpx.Response, float]:
        async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
            for name in ("hung", "free"):
                await http.post("/reset", json={"session_id": name, "seed": 0})
            hung = asyncio.create_task(http.post("/step", json={"session_id": "hung", "action": "sleep 3600"}))
            await asyncio.sleep(0.2)
            began = time.perf_counter()
            await http.post("/step", json={"session_id": "free", "action": "wait"})
            return await hung, time.perf_counter() - began

    reply, waited = asyncio.run(play())
    assert reply.status_code == 504
    assert reply.json()["detail"] == "the environment's step did not return within 1 s"
    assert waited < 2
    assert "did not return within 1 s" in service.step("hung")[1]["detail"]
    code, said = service.stop()
    assert code == 0, said


@pytest.mark.parametrize(
    "action,status,said",
    [("die", 410, "with exit code 3"), ("sleep 3600", 504, "did not return within 1 s")],
)
def test_a_worker_that_ends_takes_its_sessions_only(
    start: Callable[..., Service], action: str, status: int, said: str
) -> None:
    service = start(HOSTILE, "--workers", "2", "--timeout", "1")
    for i in range(4):
        service.reset(f"s{i}")
    got, reply = service.step("s0", action)
    assert got == status and said in reply["detail"]
    outcomes = [service.step(f"s{i}") for i in range(1, 4)]
    assert sorted(code for code, _ in outcomes) == [200, 200, 410]
    assert all(said in reply["detail"] for code, reply in outcomes if code == 410)
    for i in range(8):
        service.reset(f"later{i}")
        assert service.step(f"later{i}")[0] == 200


def test_sessions_expire_and_have_a_bound(start: Callable[..., Service]) -> None:
    service = start(HOSTILE, "--max-sessions", "2", "--idle", "0.5")
    service.reset("a")
    service.reset("b")
    assert service.ask("/reset", session_id="c", seed=0) == (
        429,
        {"detail": "2 sessions are open, the limit (--max-sessions): close some"},
    )
    deadline = time.monotonic() + 10
    while service.http.get("/").json()["sessions"] > 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert service.step("a")[1]["detail"] == "session 'a' has ended: nobody used it for 0.5 s (--idle)"
    service.reset("c")


@pytest.mark.parametrize("arguments", [[], ["--workers", "2"]], ids=["threads", "workers"])
def test_an_interrupt_ends_the_service_though_an_environment_hangs(
    start: Callable[..., Service], arguments: list[str]
) -> None:
    service = start(HOSTILE, "--timeout", "600", *arguments)
    service.reset("open")
    service.reset("hung")
    with pytest.raises(httpx.ReadTimeout):
        service.http.post("/step", json={"session_id": "hung", "action": "sleep 3600"}, timeout=0.5)
    began = time.monotonic()
    code, said = service.stop()
    assert (code, time.monotonic() - began < 12) == (0, True), said
    assert "Traceback" not in said


def test_a_second_signal_of_any_kind_ends_the_service_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    server = _Server(uvicorn.Config("none"))
    server.server_state.tasks.add(None)  # type: ignore[arg-type]
    server.handle_exit(signal.SIGTERM, None)
    assert (server.should_exit, server.force_exit) == (True, False)
    assert "requests in progress (1) get up to 5 s" in capsys.readouterr().err
    server.handle_exit(signal.SIGTERM, None)
    assert server.force_exit


def test_environments_that_hang_when_they_close_have_one_short_time_together(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    class Hanging:
        def stop(self) -> None:
            pass

        def join(self, timeout_s: float) -> None:
            waited.append(timeout_s)

    monkeypatch.setattr("ragen_env.service.lanes.time.monotonic", lambda: 100.0 + sum(waited))
    lanes._stop([Hanging(), Hanging(), Hanging()])  # type: ignore[list-item]
    assert sum(waited) == pytest.approx(2.0)


def test_an_interrupt_while_the_environment_is_tried_ends_the_program(tmp_path: Path) -> None:
    (tmp_path / "slow_world.py").write_text(
        "import time\n\nclass Slow:\n    def __init__(self):\n        print('making', flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "ragen_env.cli", "serve", "slow_world:Slow", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "making\n"
        program.send_signal(signal.SIGINT)
        assert (program.communicate(timeout=15)[0], program.returncode) == ("", 0)


@pytest.mark.parametrize(
    "target,said",
    [
        ("no_such_module:World", "there is no module no_such_module"),
        ("hostile_world:Friendly", "has no Friendly; it has Hostile"),
        ("hostile_world", "must be module:Class, file.py:Class or an id of Gymnasium"),
        ("threading:Lock", "has no method reset"),
        ("NoSuchGame-v0", "NoSuchGame"),
    ],
)
def test_what_cannot_be_served_is_named(start: Callable[..., Service], target: str, said: str) -> None:
    service = start(target)
    code, text = service.stop()
    assert code == 1 and said in text and "Traceback" not in text.split("ragen-env: ")[-1]


PROGRAM = """
import sys, ragen_env
from hostile_world import Hostile

if __name__ == "__main__":
    make = Hostile if sys.argv[1] == "class" else lambda: Hostile()
    try:
        ragen_env.serve(make, port=0, workers=int(sys.argv[2]), on_ready=lambda url: print("ready", url, flush=True))
    except ragen_env.service.ServiceError as error:
        print("refused", error, flush=True)
"""


@pytest.mark.parametrize(
    "made,workers,said",
    [("class", "0", "ready http://127.0.0.1:"), ("lambda", "0", "ready"), ("class", "1", "ready"), ("lambda", "1", "refused")],
)
def test_a_program_serves_its_environment(tmp_path: Path, made: str, workers: str, said: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), made, workers]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as program:
        assert program.stdout is not None
        try:
            line = next(line for line in program.stdout if line.startswith(("ready", "refused")))
            assert line.startswith(said)
            if said == "refused":
                assert "a class or function at the top level of a module" in line
            else:
                url = line.split()[1]
                assert httpx.post(f"{url}/reset", json={"session_id": "s", "seed": 5}).json()["observation"] == "seed 5"
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(timeout=15)


@pytest.mark.parametrize("option,value", [("--workers", "-1"), ("--timeout", "0"), ("--port", "99999")])
def test_settings_out_of_range_are_named(start: Callable[..., Service], option: str, value: str) -> None:
    code, said = start(HOSTILE, option, value).stop()
    assert code == 1 and f"{option[2:]}" in said and f"got {value}" in said


def test_a_port_that_is_taken_is_named(start: Callable[..., Service]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = start(HOSTILE, "--port", str(port)).stop()
        assert code == 1 and f"port {port} of 127.0.0.1 is taken: --port names another" in said
        code, said = start(HOSTILE.replace("Hostile", "Absent"), "--port", str(port)).stop()
    assert code == 1 and "Absent" in said and "taken" not in said


def test_a_registered_environment_is_played(server: Server, start: Callable[..., Service]) -> None:
    service = start("FrozenLake-v1", "--actions", "Left,Down,Right,Up", "--register", server.url, "--id", "me/Ice-v0")
    assert service.said[-1] == "  npm run trainer -- train Ice-v0.yaml"
    with ragen_env.Client(server.url) as client:
        described: Any = client.get_environment("me/Ice-v0")
        assert described["actions"] == ["Left", "Down", "Right", "Up"]
        first = client.create("me/Ice-v0", seed=3)
        second = client.create("me/Ice-v0", seed=3)
        for action in ("Left", "Up", "Left"):
            one, other = (client.step(each["session_id"], action) for each in (first, second))
            assert one["observation"] == other["observation"]
    service.stop()
    again = start("FrozenLake-v1", "--port", service.url.split(":")[-1], "--register", server.url, "--id", "me/Ice-v0")
    assert any(line.startswith("replaced as me/Ice-v0") for line in again.said)
    code, said = start("FrozenLake-v1", "--register", server.url, "--id", "me/Ice-v0").stop()
    assert code == 1 and "--replace replaces it, --id names another" in said


def test_the_example_of_the_page_plays(server: Server, start: Callable[..., Service], tmp_path: Path) -> None:
    page = (TESTS.parents[2] / "docs/how-to/serve-python.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    (tmp_path / "my_module.py").write_text(example)
    command = next(line for line in page.splitlines() if line.startswith("ragen-env serve my_module:MyEnv --register"))
    assert command.endswith(" --register http://127.0.0.1:8080")
    service = start("my_module:MyEnv", "--register", server.url, cwd=tmp_path)
    shown = page.split("```text\n")[1].split("```")[0].replace("http://127.0.0.1:9001", service.url)
    assert service.said == shown.replace("http://127.0.0.1:8080", server.url).splitlines()
    with ragen_env.Client(server.url) as client:
        session = client.create("me/MyEnv-v0", seed=7)
        replies = [client.step(session["session_id"], "Higher") for _ in range(3)]
        assert all(str(reply["observation"]).startswith("The card is ") for reply in replies)


def test_a_registration_without_its_token_says_what_to_give(guarded: Server, start: Callable[..., Service]) -> None:
    arguments = (HOSTILE, "--register", guarded.url, "--token")
    code, said = start(*arguments, "a-wrong-token-of-some-length").stop()
    assert code == 1 and "Give a token with the scope register as --token or in RAGEN_TOKEN." in said
    assert any(line.startswith("registered as me/Hostile-v0") for line in start(*arguments, TOKEN).said)


def test_a_registration_without_a_server_ends_within_5_s(start: Callable[..., Service]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    began = time.monotonic()
    service = start(HOSTILE, "--register", url)
    code, said = service.stop()
    assert code == 1 and "me/Hostile-v0 could not be registered" in said and "Connection refused" in said
    assert time.monotonic() - began < 8
