"""Plays as verifiers plays servers of NeMo Gym: `vf-eval nemo_gym`, with a model behind OpenAI's API that solves the room.

Usage: nemo-gym-verifiers.test-data.py HOST:PORT; prints the rewards, and what is left open.
"""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

address = sys.argv[1]
url = f"http://{address}/compat/nemo-gym/Sokoban-v0"
asked = []


def ask(address, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(address, data, {"Content-Type": "application/json"})) as reply:
        return reply.read().decode()


def open_sessions():
    return json.loads(ask(f"http://{address}/v1/sessions"))["sessions"]


class Model(http.server.BaseHTTPRequestHandler):
    """Takes the way that solves the only session, then says that it is done."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.append(body)
        delta = {"role": "assistant", "content": "done"}
        if not any(message["role"] == "tool" for message in body["messages"]):
            (playing,) = open_sessions()
            plan = json.loads(ask(f"http://{address}/v1/sessions/{playing['session_id']}/reference", {"policy": "optimal", "count": 100}))
            (step,) = (tool["function"]["name"] for tool in body["tools"] if tool["function"]["name"].endswith("step"))
            calls = [
                {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": step, "arguments": json.dumps({"action": action})}}
                for at, action in enumerate(plan["actions"])
            ]
            delta = {"role": "assistant", "content": None, "tool_calls": calls}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        spoken = {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls" if "tool_calls" in delta else "stop"}]}
        counted = {**chunk, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
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
    rows = Path(folder) / "rows.jsonl"
    rows.write_text(ask(f"{url}/rows", {"count": 1, "config": {"preset": "simple"}}))
    config = Path(folder) / "nemo_gym.toml"
    example = (Path(__file__).parents[3] / "docs/examples/python/nemo_gym.toml").read_text()
    config.write_text(example.replace("rows.jsonl", str(rows)).replace("127.0.0.1:8080", address))
    evaluated = subprocess.run(
        [
            str(Path(sys.executable).parent / "vf-eval"), "@", str(config), "-n", "1", "-c", "1", "--push", "False", "--model", "m",
            "--client.base-url", f"http://127.0.0.1:{server.server_port}/v1", "--client.api-key-var", "TEST_KEY", "--output-dir", f"{folder}/out",
        ],
        capture_output=True, text=True, timeout=550, env={**os.environ, "TEST_KEY": "x", "PRIME_DISABLE_VERSION_CHECK": "1"},
    )
    episodes = [json.loads(line) for path in Path(folder).rglob("traces.jsonl") for line in path.read_text().splitlines()]
if evaluated.returncode != 0 or not episodes:
    sys.exit(evaluated.stdout + evaluated.stderr)
traces = [trace for episode in episodes for trace in episode["traces"]]
print(
    json.dumps(
        {
            "version": traces[0]["verifiers"]["version"],
            "errors": [error for episode in episodes for error in episode["errors"]],
            "rewards": [trace["rewards"] for trace in traces],
            "success": [trace["metrics"]["success"] for trace in traces],
            "last": asked[-1]["messages"][-1]["content"],
            "open": len(open_sessions()),
        }
    )
)
