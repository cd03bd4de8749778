"""Plays rooms of Sokoban by NeMo Gym's own agent, with a model behind OpenAI's API that solves them.

Usage: play-nemo-gym.test-data.py URL; prints the rewards of the rollouts and what is left open.
"""

import http.server
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import ragen_env
from nemo_gym.cli.env import _resolve_server_dir
from nemo_gym.global_config import (
    NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME,
    NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME,
    get_global_config_dict,
)
from omegaconf import OmegaConf

url = sys.argv[1]
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


def post(port, route, body):
    """Reply of a server to JSON; no reply yet is asked for again."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{route}", data, {"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            sys.exit(f"{route}: {error.code}: {error.read().decode()}")
        except urllib.error.URLError:
            if any(process.poll() is not None for process in servers.values()):
                raise
            time.sleep(1)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
home = Path(__file__).parent / "nemo_gym"
app = home / "resources_servers/ragen/app.py"
written = subprocess.run(
    [sys.executable, app, "Sokoban-v0", str(rooms), '{"preset": "simple"}'],
    env={**os.environ, "RAGEN_URL": url}, stdout=subprocess.PIPE, text=True, check=True, timeout=300,
)
# The servers of its command line, as that starts them, but without Ray, which none of them uses.
os.chdir(home)
os.environ["RAGEN_URL"] = url
paths = "resources_servers/ragen/configs/ragen.yaml,responses_api_models/vllm_model/configs/vllm_model.yaml"
sys.argv = [
    "gym", f"+config_paths=[{paths}]", f"+policy_base_url=http://127.0.0.1:{server.server_port}/v1",
    "+policy_api_key=x", "+policy_model_name=m", "hydra.output_subdir=null", f"hydra.run.dir={home}",
]
config = get_global_config_dict()
servers, ports = {}, {}
for name in ("ragen_resources_server", "ragen_simple_agent", "policy_model"):
    ((kind, one),) = config[name].items()
    ((package, settings),) = one.items()
    ports[name] = settings["port"]
    given = {NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME: OmegaConf.to_yaml(config), NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME: name}
    folder = _resolve_server_dir(Path(kind, package))
    servers[name] = subprocess.Popen(
        [sys.executable, settings["entrypoint"]], cwd=folder, env={**os.environ, **given}, stdout=sys.stderr
    )
try:
    rollouts = [post(ports["ragen_simple_agent"], "/run", json.loads(row)) for row in written.stdout.splitlines()]
    # A rollout with a cookie of nobody: its episode is not known.
    answered = {key: rollouts[0][key] for key in ("responses_create_params", "response")}
    lost = post(ports["ragen_resources_server"], "/verify", answered)
finally:
    for process in servers.values():
        process.terminate()
    for process in servers.values():
        process.wait(timeout=60)
with ragen_env.Client(url) as client:
    left = len(client.list()["sessions"])
print(
    json.dumps(
        {
            "version": importlib.metadata.version("nemo-gym"),
            "rewards": [rollout["reward"] for rollout in rollouts],
            "success": [rollout["success"] for rollout in rollouts],
            "masked": [rollout["mask_sample"] for rollout in rollouts],
            "first": asked[0][0]["content"],
            "tools": [message["content"] for message in asked[-1] if message["role"] == "tool"],
            "lost": {key: lost[key] for key in ("reward", "success", "mask_sample", "failure_kind")},
            "open": left,
        }
    )
)
