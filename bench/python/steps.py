"""Steps a second of vectorized FrozenLake, of everything that is installed. All take turns in each round.

Usage: steps.py RAGEN_URL RAGEN_PID SIZES SECONDS ROUNDS; prints a JSON object for each measurement. Processor time is that
of this process and of the server that the case uses.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ragen_env
from ragen_env import codec

WARM_UP = 5
START_SECONDS = 120
Play = Callable[[float], tuple[int, float]]


def processor_seconds(pid: int | None) -> float:
    """Processor time of this process, plus that of another one where the system reports it."""
    stat = Path(f"/proc/{pid}/stat")
    other = 0.0
    if pid is not None and stat.exists():
        fields = stat.read_text().rpartition(")")[2].split()
        other = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return time.process_time() + other


def vectorized(envs: Any, seconds: float) -> tuple[int, float]:
    """Steps of all environments, and the seconds they took."""
    envs.reset(seed=1)
    actions = [envs.action_space.sample() for _ in range(64)]
    for index in range(WARM_UP):
        envs.step(actions[index])
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        envs.step(actions[count % len(actions)])
        count += 1
    envs.close()
    return count * envs.num_envs, elapsed


def ragen(url: str, num_envs: int, form: str, transport: str) -> Play:
    def play(seconds: float) -> tuple[int, float]:
        envs = ragen_env.RagenVectorEnv(
            "FrozenLake-v0", url, num_envs=num_envs, observation_format=form, transport=transport
        )
        return vectorized(envs, seconds)

    return play


def in_process(num_envs: int, mode: str) -> Play:
    def play(seconds: float) -> tuple[int, float]:
        return vectorized(gymnasium.make_vec("FrozenLake-v1", num_envs=num_envs, vectorization_mode=mode), seconds)

    return play


def openenv(url: str, num_envs: int) -> Play:
    """OpenEnv's own client, one WebSocket for each environment, all of them at once."""
    from openenv.core.generic_client import GenericEnvClient

    async def run(seconds: float) -> tuple[int, float]:
        clients = [GenericEnvClient(base_url=url) for _ in range(num_envs)]
        await asyncio.gather(*(client.connect() for client in clients))
        await asyncio.gather(*(client.reset(seed=seed) for seed, client in enumerate(clients)))
        random = np.random.default_rng(1)

        async def step_one(client: Any, action: int) -> None:
            if (await client.step({"action": action})).done:
                await client.reset()

        async def step() -> None:
            actions = random.integers(4, size=num_envs).tolist()
            await asyncio.gather(*(step_one(client, action) for client, action in zip(clients, actions)))

        for _ in range(WARM_UP):
            await step()
        count, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            await step()
            count += 1
        await asyncio.gather(*(client.close() for client in clients))
        return count * num_envs, elapsed

    return lambda seconds: asyncio.run(run(seconds))


def start_openenv(most: int) -> tuple[subprocess.Popen[bytes], str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = Path(__file__).with_name("openenv_lake.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(port), str(most)], stderr=subprocess.DEVNULL
    )
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1).read()
            return process, url
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main(url: str, pid: int, sizes: list[int], seconds: float, rounds: int) -> None:
    cases: dict[tuple[str, int], Play] = {}
    server = None
    if find_spec("openenv") and find_spec("fastapi") and find_spec("uvicorn"):
        server, openenv_url = start_openenv(max(sizes))
    for size in sizes:
        cases["ragen-env, text", size] = ragen(url, size, "text", "websocket")
        cases["ragen-env, structured", size] = ragen(url, size, "structured", "websocket")
        cases["ragen-env over HTTP, text", size] = ragen(url, size, "text", "http")
        cases["Gymnasium in process, sync", size] = in_process(size, "sync")
        if size <= 64:
            cases["Gymnasium in processes, async", size] = in_process(size, "async")
        if server is not None:
            cases["OpenEnv's server and client", size] = openenv(openenv_url, size)
    print(json.dumps({"orjson": codec.FAST, "openenv": server is not None}), flush=True)
    try:
        for number in range(rounds):
            for (name, size), play in cases.items():
                server_pid = pid if name.startswith("ragen") else server.pid if server and "OpenEnv" in name else None
                before = processor_seconds(server_pid)
                steps, elapsed = play(seconds)
                cpu = (processor_seconds(server_pid) - before) / steps
                row = {"round": number, "name": name, "size": size, "steps_per_second": steps / elapsed, "cpu_us": 1e6 * cpu}
                print(json.dumps(row), flush=True)
    finally:
        if server is not None:
            server.kill()


if __name__ == "__main__":
    url, pid, sizes, seconds, rounds = sys.argv[1:]
    main(url, int(pid), [int(size) for size in sizes.split(",")], float(seconds), int(rounds))
