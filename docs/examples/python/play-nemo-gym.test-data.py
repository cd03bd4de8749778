"""Plays rooms of Sokoban by the commands of NeMo Gym, with a model behind OpenAI's API that solves them.

Usage: play-nemo-gym.test-data.py URL PORT FOLDER; prints the rewards of the rollouts and what is left open. PORT is free for
the head server, and FOLDER keeps the environments that NeMo Gym installs for its servers.
"""

import http.server
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import ragen_env

url, port, folder = sys.argv[1:]
rooms = 3
asked = []


class Model(http.server.BaseHTTPRequestHandler):
    """Solves the only session, after an answer that names no action; then it says that it is done."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = body["messages"]
        asked.append(messages)
        seen = [json.loads(message["content"]) for message in messages if message["role"] == "tool"]
        said = {"role": "assistant", "content": "done"}
        if not (seen and seen[-1]["done"]):
            actions = self.plan() if seen else "nonsense"
            call = {"name": "step", "arguments": json.dumps({"actions": actions})}
            tool = {"id": f"call_{len(seen)}", "type": "function", "function": call}
            said = {"role": "assistant", "content": None, "tool_calls": [tool]}
        finish = "tool_calls" if "tool_calls" in said else "stop"
        choice = {"index": 0, "message": said, "finish_reason": finish}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        text = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def plan(self):
        with ragen_env.Client(url) as client:
            (playing,) = client.list()["sessions"]
            plan = client.reference(playing["session_id"], policy="optimal", count=1)["actions"]
        return "||".join(re.findall("<answer>([^<]*)</answer>", "".join(map(str, plan))))

    def log_message(self, *_):
        pass


def ask(address, body=None):
    """Reply of a server to JSON; a server that does not answer yet is asked again."""
    data = None if body is None else json.dumps(body).encode()
    while True:
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return json.load(reply)
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
home = Path(__file__).parent / "nemo_gym"
work = Path(tempfile.mkdtemp(prefix="ragen-nemo-"))
package = Path(__file__).parents[3] / "openapi/python"
env = {
    **os.environ, "RAGEN_URL": url, "PATH": f"{bin}:{os.environ['PATH']}", "UV_FIND_LINKS": str(work),
    "NEMO_GYM_EXTRA_ROOTS": str(home), "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(work),
    "RAY_raylet_start_wait_time_s": "600",
}
wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", work, package]
subprocess.run(wheel, stdout=sys.stderr, check=True, timeout=300)
app = home / "resources_servers/ragen/app.py"
written = subprocess.run(
    [sys.executable, app, "Sokoban-v0", str(rooms), '{"preset": "simple"}'],
    env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=300,
)
(work / "rows.jsonl").write_text(written.stdout)
head = f"http://127.0.0.1:{port}"
gym = [sys.executable, bin / "gym"]
place = [f"+head_server.port={port}", "+head_server.host=127.0.0.1", "hydra.output_subdir=null", f"hydra.run.dir={work}"]
servers = subprocess.Popen(
    [
        *gym, "env", "start", "--config", "resources_servers/ragen/configs/ragen.yaml", "--model-type", "vllm_model",
        "--model-url", f"http://127.0.0.1:{server.server_port}/v1", "--model", "m", "--model-api-key", "x",
        f"+uv_venv_dir={folder}", f"+uv_cache_dir={folder}/cache", "+skip_venv_if_present=true",
        "+error_on_agent_without_environment_server=true", *place,
    ],
    cwd=work, env=env, stdout=sys.stderr, start_new_session=True,
)
try:
    ask(f"{head}/readyz")
    rollouts = work / "rollouts.jsonl"
    subprocess.run(
        [
            *gym, "eval", "run", "--no-serve", "--agent", "ragen_simple_agent", "--input", work / "rows.jsonl",
            "--output", rollouts, "+num_samples_in_parallel=1", *place,
        ],
        cwd=work, env=env, stdout=sys.stderr, check=True,
    )
    played = [json.loads(row) for row in rollouts.read_text().splitlines()]
    # A rollout with a cookie of nobody: its episode is not known.
    (own,) = (one["url"] for one in ask(f"{head}/server_instances") if one["process_name"] == "ragen_resources_server")
    answered = {key: played[0][key] for key in ("responses_create_params", "response")}
    lost = ask(f"{own}/verify", answered)
finally:
    servers.send_signal(signal.SIGINT)
    try:
        servers.wait(timeout=120)
    finally:
        try:
            os.killpg(servers.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        shutil.rmtree(work)
with ragen_env.Client(url) as client:
    left = len(client.list()["sessions"])
print(
    json.dumps(
        {
            "version": importlib.metadata.version("nemo-gym"),
            "rewards": [rollout["reward"] for rollout in played],
            "success": [rollout["success"] for rollout in played],
            "masked": [rollout["mask_sample"] for rollout in played],
            "first": asked[0][0]["content"],
            "tools": [message["content"] for message in asked[-1] if message["role"] == "tool"],
            "lost": {key: lost[key] for key in ("reward", "success", "mask_sample", "failure_kind")},
            "open": left,
        }
    )
)
