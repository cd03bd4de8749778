"""One attempt at a batch, over HTTP or a WebSocket, for programs with threads."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Any, Protocol

import httpx
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from . import codec
from .batches import Exchange, problem_of
from .errors import BadReply, ConnectionFailed, ProblemError, ReplyTimeout
from .settings import MAX_REPLY_BYTES, Settings

_READ_BYTES = 256 * 1024


class SyncTransport(Protocol):
    def exchange(self, batch: Exchange, timeout_s: float) -> Any:
        """The batch result, unread.

        Raises ProblemError, ConnectionFailed, ReplyTimeout, BadReply.
        """

    def close(self) -> None: ...


class HttpTransport:
    """``POST /v1/batch`` over connections that are kept alive."""

    def __init__(self, settings: Settings):
        self._settings = settings
        timeout = httpx.Timeout(settings.timeout_s, connect=settings.connect_timeout_s)
        self._client = httpx.Client(headers=settings.headers, timeout=timeout)

    def exchange(self, batch: Exchange, timeout_s: float) -> Any:
        settings = self._settings
        timeout = httpx.Timeout(timeout_s, connect=settings.connect_timeout_s)
        try:
            reply = self._client.post(
                f"{settings.base_url}/v1/batch",
                content=http_body(batch),
                headers=http_headers(batch),
                timeout=timeout,
            )
        except Exception as error:
            raise http_failure(settings.base_url, batch.operation, error) from error
        return read_http(settings.base_url, batch.operation, reply)

    def close(self) -> None:
        self._client.close()


def http_body(batch: Exchange) -> bytes:
    return b'{"items":%b}' % batch.items()


def http_headers(batch: Exchange) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if batch.key is not None:
        headers["idempotency-key"] = batch.key
    return headers


def http_failure(server: str, operation: str, error: Exception) -> Exception:
    """What an exception of httpx means; others stay what they are."""
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return ConnectionFailed(f"{server}: no connection: {error or type(error).__name__}")
    if isinstance(error, httpx.TimeoutException):
        return ReplyTimeout(f"{server} did not answer {operation} in time")
    if isinstance(error, httpx.TransportError):
        return ConnectionFailed(f"{server}: the connection broke: {error or type(error).__name__}")
    return error


def read_http(server: str, operation: str, reply: httpx.Response) -> Any:
    try:
        value = codec.loads(reply.content)
    except ValueError as error:
        if reply.status_code in (429, 502, 503, 504):
            raise ConnectionFailed(f"{server} answered {operation} with {reply.status_code}") from error
        raise BadReply(server, f"status {reply.status_code}, {reply.content[:100]!r}") from error
    if reply.status_code == httpx.codes.OK:
        return value
    seconds = reply.headers.get("retry-after", "")
    raise problem_of(server, operation, value, float(seconds) if seconds.isdigit() else None)


class WebSocketTransport:
    """One WebSocket, used by one thread at a time; opened on first use and again after it broke.

    It has no thread that reads ahead: a reply is read by the one who waits for it, which costs no switches. A socket
    that the server cut meanwhile is noticed at the next request, which is repeated under its key.
    """

    def __init__(self, settings: Settings):
        self._settings = settings
        self._server = settings.base_url
        self._socket: socket.socket | None = None
        self._protocol: ClientProtocol | None = None
        self._next_id = 1
        self._fragments: list[bytes] = []

    def exchange(self, batch: Exchange, timeout_s: float) -> Any:
        try:
            connection, protocol = self._opened()
            identity = self._next_id
            self._next_id += 1
            key = b"" if batch.key is None else b',"request_key":"%b"' % batch.key.encode()
            protocol.send_text(b'{"id":%d,"op":"batch","items":%b%b}' % (identity, batch.items(), key))
            deadline = time.monotonic() + timeout_s
            self._flush(connection, protocol, deadline)
            return self._reply(connection, protocol, identity, batch.operation, deadline)
        except ProblemError:
            raise
        except TimeoutError as error:
            self.close()
            raise ReplyTimeout(f"{self._server} did not answer {batch.operation} within {timeout_s:g} s") from error
        except (ConnectionFailed, BadReply):
            self.close()
            raise
        except OSError as error:
            self.close()
            raise ConnectionFailed(f"{self._server}: the connection broke: {error}") from error
        except BaseException:
            # An interrupt may come while half a frame is sent.
            self.close()
            raise

    def _reply(
        self, connection: socket.socket, protocol: ClientProtocol, identity: int, operation: str, deadline: float
    ) -> Any:
        while True:
            for data in self._messages(connection, protocol, deadline):
                try:
                    frame = codec.loads(data)
                except ValueError as error:
                    raise BadReply(self._server, repr(data[:100])) from error
                number = frame.get("id") if isinstance(frame, dict) else None
                if number == identity or number is None:
                    if isinstance(frame, dict) and frame.get("ok") is True:
                        return frame.get("result")
                    problem = frame.get("error") if isinstance(frame, dict) else None
                    raise problem_of(self._server, operation, problem)

    def _messages(self, connection: socket.socket, protocol: ClientProtocol, deadline: float) -> list[bytes]:
        """What the next bytes complete; raises ConnectionFailed at the end of the connection."""
        connection.settimeout(_left(deadline))
        data = connection.recv(_READ_BYTES)
        if data:
            protocol.receive_data(data)
        else:
            protocol.receive_eof()
        messages: list[bytes] = []
        for event in protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._fragments.append(bytes(event.data))
                if event.fin:
                    whole = self._fragments
                    messages.append(whole[0] if len(whole) == 1 else b"".join(whole))
                    self._fragments = []
        self._flush(connection, protocol, deadline)
        if not messages and (not data or protocol.state is not State.OPEN):
            reason = protocol.close_exc if protocol.state is State.CLOSED else "the server closes it"
            raise ConnectionFailed(f"{self._server}: the connection ended: {reason}")
        return messages

    def _flush(self, connection: socket.socket, protocol: ClientProtocol, deadline: float) -> None:
        connection.settimeout(_left(deadline))
        for data in protocol.data_to_send():
            if data:
                connection.sendall(data)
            else:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)

    def _opened(self) -> tuple[socket.socket, ClientProtocol]:
        if self._socket is not None and self._protocol is not None:
            return self._socket, self._protocol
        settings = self._settings
        uri = parse_uri(settings.websocket_url)
        deadline = time.monotonic() + settings.connect_timeout_s
        try:
            connection = socket.create_connection((uri.host, uri.port), settings.connect_timeout_s)
        except OSError as error:
            raise ConnectionFailed(f"{self._server}: no connection: {error}") from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            if uri.secure:
                connection = ssl.create_default_context().wrap_socket(connection, server_hostname=uri.host)
            protocol = ClientProtocol(uri, subprotocols=[Subprotocol("ragen.json")], max_size=MAX_REPLY_BYTES)
            self._shake_hands(connection, protocol, deadline)
        except TimeoutError as error:
            connection.close()
            raise ConnectionFailed(f"{self._server}: no connection within {settings.connect_timeout_s:g} s") from error
        except BaseException:
            connection.close()
            raise
        self._socket, self._protocol = connection, protocol
        self._fragments = []
        return connection, protocol

    def _shake_hands(self, connection: socket.socket, protocol: ClientProtocol, deadline: float) -> None:
        request = protocol.connect()
        request.headers.update(self._settings.headers)
        protocol.send_request(request)
        self._flush(connection, protocol, deadline)
        while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
            connection.settimeout(_left(deadline))
            data = connection.recv(_READ_BYTES)
            if data:
                protocol.receive_data(data)
            else:
                protocol.receive_eof()
                break
        if protocol.state is not State.OPEN:
            raise refusal(self._server, protocol.handshake_exc)

    def close(self) -> None:
        connection, protocol = self._socket, self._protocol
        self._socket = self._protocol = None
        if connection is None:
            return
        with contextlib.suppress(Exception):
            if protocol is not None and protocol.state is State.OPEN:
                protocol.send_close()
                self._flush(connection, protocol, time.monotonic() + 0.2)
        connection.close()

    def abandon(self) -> None:
        """Lets go of a socket that belongs to the process this one was forked from, which keeps it."""
        connection = self._socket
        self._socket = self._protocol = None
        if connection is not None:
            connection.close()


def refusal(server: str, error: BaseException | None) -> Exception:
    """Why a server refused the upgrade: for good, or because it is starting or draining."""
    if isinstance(error, InvalidStatus):
        response = error.response
        body = bytes(response.body or b"")
        with contextlib.suppress(ValueError, BadReply):
            return problem_of(server, "the connection", codec.loads(body))
        if response.status_code in (429, 502, 503, 504):
            return ConnectionFailed(f"{server} refused the connection with {response.status_code}")
        return BadReply(server, f"status {response.status_code} for the WebSocket")
    return ConnectionFailed(f"{server}: the connection was refused: {error or 'it was closed'}")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
