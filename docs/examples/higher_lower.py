"""An environment as a web service, with nothing but Python's standard library.

    python3 docs/examples/higher_lower.py --port 9001

Guess whether the next roll of a die is higher or lower than the last. The service keeps the episodes in memory under
the session ids that the environment server chooses. Routes: POST /reset, /step and /close.
"""

import argparse
import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NEEDED = 5  # right answers that win

episodes = {}
lock = threading.Lock()


class Episode:
    def __init__(self, seed, sides):
        # The same seed gives the same rolls: that is what makes results comparable.
        self.random = random.Random(seed)
        self.sides = sides
        self.roll = self.random.randint(1, sides)
        self.right = 0

    def observation(self):
        text = f"The die shows {self.roll}. Right answers so far: {self.right} of {NEEDED}."
        return {"text": text, "structured": {"roll": self.roll, "right": self.right}}

    def step(self, action):
        before = self.roll
        self.roll = self.random.randint(1, self.sides)
        right = self.roll > before if action == "Higher" else self.roll < before
        self.right += right
        won = self.right >= NEEDED
        return {
            "observation": self.observation(),
            "reward": 1.0 if right else 0.0,
            "terminated": won,
            "info": {"success": won},
        }


def reset(request):
    episode = Episode(request.get("seed"), request["config"]["sides"])
    with lock:
        episodes[request["session_id"]] = episode
    return {"observation": episode.observation()}


def step(request):
    with lock:
        episode = episodes[request["session_id"]]
    return episode.step(request["action"])


def close(request):
    with lock:
        episodes.pop(request["session_id"], None)
    return {}


ROUTES = {"/reset": reset, "/step": step, "/close": close}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The reply leaves in two segments, headers and body; Nagle's algorithm would hold back the second for 40 ms.
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        route = ROUTES.get(self.path)
        try:
            status, reply = (200, route(json.loads(body))) if route else (404, {"detail": "no such route"})
        except KeyError as error:
            status, reply = 404, {"detail": f"unknown {error}"}
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=9001)
    ThreadingHTTPServer.request_queue_size = 128  # episodes that begin at once; Python's default is 5
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
