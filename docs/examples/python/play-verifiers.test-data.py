"""Plays three episodes by verifiers' own `vf-eval`, with a model behind OpenAI's API that solves each.

Usage: play-verifiers.test-data.py URL [FOLDER]; prints the rewards, and what is left open, and keeps the traces in FOLDER.
"""

import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import ragen_env

url = sys.argv[1]
asked = []


class Model(http.server.BaseHTTPRequestHandler):
    """Solves the only session."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.append(body["messages"])
        with ragen_env.Client(url) as client:
            (playing,) = client.list()["sessions"]
            plan = client.reference(playing["session_id"], policy="optimal", count=100)["actions"]
        delta = {"role": "assistant", "content": "".join(map(str, plan))}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        spoken = {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        counted = {**chunk, "choices": [], "usage": usage}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in (json.dumps(spoken), json.dumps(counted), "[DONE]"):
            self.wfile.write(f"data: {event}\n\n".encode())

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
with tempfile.TemporaryDirectory() as folder:
    evaluated = subprocess.run(
        [
            str(Path(sys.executable).parent / "vf-eval"), "verifiers_environment", "-n", "3", "-c", "1", "--push", "False", "--model", "m",
            "--client.base-url", f"http://127.0.0.1:{server.server_port}/v1", "--client.api-key-var", "TEST_KEY",
            "--env.taskset.base-url", url, "--env.taskset.config", '{"preset": "simple"}', "--env.taskset.seeds", "3",
            "--env.player.runtime.type", "subprocess", "--env.player.harness.id", "null", "--output-dir", folder,
        ],
        capture_output=True, text=True, timeout=400, env={**os.environ, "TEST_KEY": "x", "PRIME_DISABLE_VERSION_CHECK": "1"},
    )
    if len(sys.argv) > 2:
        for path in Path(folder).rglob("traces.jsonl"):
            shutil.copy(path, sys.argv[2])
    episodes = [json.loads(line) for path in Path(folder).rglob("traces.jsonl") for line in path.read_text().splitlines()]
if evaluated.returncode != 0 or not episodes:
    sys.exit(evaluated.stdout + evaluated.stderr)
traces = [trace for episode in episodes for trace in episode["traces"]]
with ragen_env.Client(url) as client:
    left = len(client.list()["sessions"])
print(
    json.dumps(
        {
            "version": traces[0]["verifiers"]["version"],
            "errors": [error for episode in episodes for error in episode["errors"]],
            "rewards": [trace["rewards"] for trace in traces],
            "metrics": [trace["metrics"]["success"] for trace in traces],
            "first": asked[0][0]["content"],
            "open": left,
        }
    )
)
