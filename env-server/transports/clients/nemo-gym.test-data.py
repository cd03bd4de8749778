"""Plays by the commands of NeMo Gym, with a model behind OpenAI's API that solves what it plays.

Usage: nemo-gym.test-data.py ADDRESS PORT FOLDER; prints the rewards of the rollouts and what is left open. ADDRESS is the
server's HOST:PORT, PORT is free for the head server, and FOLDER keeps the environments that NeMo Gym installs for its servers.
"""

import http.server
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import httpx
import ragen_env
from fastapi import FastAPI, Request, Response
from nemo_gym.base_resources_server import ResourcesSeedSessionRequest
from nemo_gym.testing.session_conformance import check_resources_session_contract

address, port, folder = sys.argv[1:]
url = f"http://{address}"
asked = []


class Model(http.server.BaseHTTPRequestHandler):
    """Calls an unknown tool, then solves the only session; then it says that it is done."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.append(body["messages"])
        seen = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        calls = [] if "over" in "".join(seen) else self.plan(body["tools"]) if seen else [("fly", {})]
        tools = [
            {"id": f"call_{len(seen)}_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for at, (name, given) in enumerate(calls)
        ]
        said = {"role": "assistant", "content": None, "tool_calls": tools} if tools else {"role": "assistant", "content": "done"}
        choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if tools else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        text = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def plan(self, tools):
        names = [tool["function"]["name"] for tool in tools]
        with ragen_env.Client(url) as client:
            (playing,) = client.list()["sessions"]
            policy = "oracle" if "search" in names else "optimal"
            plan = client.reference(playing["session_id"], policy=policy, count=100)["actions"]
        if "search" not in names:
            return [("step", {"action": action}) for action in plan]
        (answer,) = re.findall(r"finish\[(.*)\]", plan[0])
        return [("search", {"query": answer}), ("answer", {"answer": answer})]

    def log_message(self, *_):
        pass


def ask(address, body=None):
    """Reply of a server to JSON; a server that does not answer yet is asked again."""
    data = None if body is None else json.dumps(body).encode()
    while True:
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return reply.read().decode()
        except urllib.error.HTTPError as error:
            if error.code != 503:
                sys.exit(f"{address}: {error.code}: {error.read().decode()}")
        except urllib.error.URLError:
            pass
        if servers.poll() is not None:
            sys.exit(f"gym env start ended with {servers.returncode}")
        time.sleep(1)


signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
bin = Path(sys.executable).parent
work = Path(tempfile.mkdtemp(prefix="ragen-nemo-"))
host, own_port = address.split(":")
env = {
    **os.environ, "RAGEN_HOST": host, "RAGEN_PORT": own_port, "PATH": f"{bin}:{os.environ['PATH']}",
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(work), "RAY_raylet_start_wait_time_s": "60",
    "RAY_agent_register_timeout_ms": "600000", "RAY_AUTH_MODE": "disabled",
}
config = (Path(__file__).parents[3] / "docs/examples/python/nemo_gym.yaml").read_text()
# A second environment, with tools; its agent owns the episodes, as before 0.7.
other = config.replace("ragen", "other").replace("RAGEN_ENV,Sokoban-v0", "OTHER_ENV,SearchQA-v0")
other = other.replace("single_agent_turn_legacy", "legacy_agent").replace("      resources_tool_transports: [direct_http]\n", "")
start, stop = re.search(r"      resources_server:\n.*\n.*\n(?=      agent_server)", other).span()
(work / "ragen.yaml").write_text(config)
(work / "other.yaml").write_text(other[:start] + other[stop:])
head = f"http://127.0.0.1:{port}"
gym = [sys.executable, bin / "gym"]
place = [f"+head_server.port={port}", "+head_server.host=127.0.0.1", "hydra.output_subdir=null", f"hydra.run.dir={work}"]
def end(process):
    """Kills a process with what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def start_ray():
    """Starts Ray, and its port. Its node gives up where its agent takes more than 15 s to start: it is tried again."""
    for attempt in range(10):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ray_port = free.getsockname()[1]
        started = subprocess.Popen(
            [
                sys.executable, bin / "ray", "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(ray_port),
                "--include-dashboard", "false", "--num-cpus", "1", "--temp-dir", work / f"ray{attempt}",
            ],
            cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )
        for line in started.stdout:
            print("ray:", line, end="", file=sys.stderr)
            if "Ray runtime started" in line:
                return started, ray_port
        end(started)
    sys.exit("Ray did not start")


ray, ray_port = start_ray()
servers = subprocess.Popen(
    [
        *gym, "env", "start", "--config", work / "ragen.yaml", "--config", work / "other.yaml", "--model-type", "vllm_model",
        "--model-url", f"http://127.0.0.1:{server.server_port}/v1", "--model", "m", "--model-api-key", "x",
        f"+uv_venv_dir={folder}", f"+uv_cache_dir={folder}/cache", "+skip_venv_if_present=true",
        f"+ray_head_node_address=127.0.0.1:{ray_port}", "+error_on_agent_without_environment_server=true", *place,
    ],
    cwd=work, env=env, stdout=sys.stderr, start_new_session=True,
)


def evaluate(agent, env_id, **wishes):
    """Rollouts of an agent, and the metrics of them all."""
    (work / f"{agent}.jsonl").write_text(ask(f"{url}/compat/nemo-gym/{env_id}/rows", wishes))
    rollouts = work / f"{agent}-rollouts.jsonl"
    subprocess.run(
        [
            *gym, "eval", "run", "--no-serve", "--agent", agent, "--input", work / f"{agent}.jsonl",
            "--output", rollouts, "+num_samples_in_parallel=1", *place,
        ],
        cwd=work, env=env, stdout=sys.stderr, check=True,
    )
    (metrics,) = json.loads((work / f"{agent}-rollouts_aggregate_metrics.json").read_text())
    return [json.loads(row) for row in rollouts.read_text().splitlines()], metrics["key_metrics"]


def check_contract():
    """NeMo Gym's own check of sessions, by a relay, as it asks an application of FastAPI."""
    relay = FastAPI()

    @relay.post("/{route}")
    async def post(route: str, request: Request) -> Response:
        async with httpx.AsyncClient() as client:
            sent = await client.post(f"{url}/compat/nemo-gym/Sokoban-v0/{route}", json=await request.json())
        return Response(sent.content, sent.status_code)

    identity = {"resources_session_id": "checked", "episode_id": {"rollout_id": "0-0"}, "task_id": {"taskset": "a", "task_id": "b"}}
    seed = ResourcesSeedSessionRequest(**identity, task_data={"seed": 1})
    check_resources_session_contract(relay, seed, keeps_state=True)


try:
    ask(f"{head}/readyz")
    rooms, metrics = evaluate("ragen_agent", "Sokoban-v0", count=2, config={"preset": "simple"})
    first, tools = asked[0][0]["content"], [message["content"] for message in asked[-1] if message["role"] == "tool"]
    questions, _ = evaluate("other_agent", "SearchQA-v0", count=2)
    check_contract()
finally:
    servers.send_signal(signal.SIGINT)
    try:
        servers.wait(timeout=120)
    finally:
        end(servers)
        end(ray)
        shutil.rmtree(work, ignore_errors=True)
with ragen_env.Client(url) as client:
    left = len(client.list()["sessions"])
print(
    json.dumps(
        {
            "version": importlib.metadata.version("nemo-gym"),
            "rewards": [rollout["reward"] for rollout in rooms],
            "success": [rollout["success"] for rollout in [*rooms, *questions]],
            "masked": [rollout["mask_sample"] for rollout in [*rooms, *questions]],
            "metrics": metrics,
            "first": first,
            "tools": tools,
            "open": left,
        }
    )
)
