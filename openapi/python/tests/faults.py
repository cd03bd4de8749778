"""What goes wrong between a client and a server, on purpose."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on. ``cut_replies`` connections are cut when the reply to a request has come, and none of it sent."""

    def __init__(self, upstream: str):
        split = urlsplit(upstream)
        self._upstream = (str(split.hostname), int(split.port or 80))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cut_replies = 0
        self.stalled = False
        self.connections = 0
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(self._upstream)
                state = {"sent": 0}
                threading.Thread(target=self._forward, args=(client, server, state, True), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, state, False), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, state: dict[str, int], up: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if up:
                    # The first message of a WebSocket is its handshake.
                    state["sent"] += 0 if data.startswith(b"GET /v1/ws") else 1
                elif self.stalled:
                    continue
                elif self.cut_replies > 0 and state["sent"] > 0:
                    self.cut_replies -= 1
                    self.cuts += 1
                    break
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self._listener.close()


class Refusing:
    """A server that answers the first requests with ``refusals``, and then every batch with ``result`` for each item."""

    def __init__(self, refusals: list[tuple[int, dict[str, str], bytes]], result: Any = None):
        self.refusals = list(refusals)
        self.keys: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.keys.append(self.headers.get("idempotency-key"))
                if outer.refusals:
                    status, headers, reply = outer.refusals.pop(0)
                else:
                    results = [{"ok": True, "result": result} for _ in body["items"]]
                    status, headers, reply = 200, {}, json.dumps({"results": results}).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def problem(status: int, code: str, retryable: bool, **more: Any) -> dict[str, Any]:
    return {
        "type": "about:blank",
        "title": code,
        "status": status,
        "detail": f"it is {code}",
        "code": code,
        "retryable": retryable,
        "trace_id": "0",
        **more,
    }
