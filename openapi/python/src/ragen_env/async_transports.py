"""One attempt at a batch, over HTTP or a WebSocket, for asyncio."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import httpx
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from . import codec
from .async_runtime import Canceled, Event, HttpClient, Lock, Stream, Timeout, wait
from .batches import Exchange, problem_of
from .errors import BadReply, ClientClosed, ConnectionFailed, RagenError, ReplyTimeout
from .settings import MAX_REPLY_BYTES, Settings

_AWAY = frozenset([429, 502, 503, 504])
_MAX_CONNECTIONS = 100
_CLOSING_S = 0.2


class AsyncHttpTransport:
    """``POST /v1/batch`` over connections that are kept alive."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._client = HttpClient(
            headers=settings.headers,
            limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
        )

    async def exchange(self, batch: Exchange, timeout_s: float) -> Any:
        """The batch result, unread; raises ProblemError, ConnectionFailed, ReplyTimeout, BadReply."""
        server, operation = self._settings.base_url, batch.operation
        headers = {} if batch.key is None else {"idempotency-key": batch.key}
        try:
            reply = await self._client.post(
                f"{server}/v1/batch",
                content=b'{"items":%b}' % batch.items(),
                headers={"content-type": "application/json", **headers},
                timeout=httpx.Timeout(timeout_s, connect=self._settings.connect_timeout_s),
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ConnectionFailed(f"{server}: no connection: {error or type(error).__name__}") from error
        except httpx.TimeoutException as error:
            raise ReplyTimeout(f"{server} did not answer {operation} in time") from error
        except httpx.TransportError as error:
            raise ConnectionFailed(f"{server}: the connection broke: {error or type(error).__name__}") from error
        try:
            value = codec.loads(reply.content)
        except ValueError as error:
            if reply.status_code in _AWAY:
                raise ConnectionFailed(f"{server} answered {operation} with {reply.status_code}") from error
            raise BadReply(server, f"status {reply.status_code}, {reply.content[:100]!r}") from error
        if reply.status_code == httpx.codes.OK:
            return value
        seconds = reply.headers.get("retry-after", "")
        raise problem_of(server, operation, value, float(seconds) if seconds.isdigit() else None)

    async def close(self) -> None:
        await self._client.aclose()

    def drop(self) -> None:
        """The connections go with the transport."""


class _Waiting:
    """A request in progress."""

    __slots__ = ("_woken", "frame", "sent")

    def __init__(self) -> None:
        self.frame: dict[str, Any] | None = None
        self.sent = False
        self._woken: Event | None = None

    def wake(self) -> None:
        """Its frame has come, the connection has failed, or it is its turn to read."""
        if self._woken is not None:
            self._woken.set()

    async def woken(self, seconds: float) -> bool:
        self._woken = self._woken or Event()
        return await wait(self._woken, seconds)


class _AsyncConnection:
    """An open WebSocket. One of the requests that wait reads for all of them, so that nothing else has to run.

    A request that is canceled or out of time leaves the others alone: its reply is dropped when it comes. Where nothing
    at all came for as long as a request waits, the connection counts as broken.
    """

    def __init__(self, settings: Settings, stream: Stream):
        self.stream = stream
        self.failure: RagenError | None = None
        self._server = settings.base_url
        self._protocol = ClientProtocol(
            parse_uri(settings.websocket_url), subprotocols=[Subprotocol("ragen.json")], max_size=MAX_REPLY_BYTES
        )
        self._waiting: dict[int, _Waiting] = {}
        self._reader: _Waiting | None = None
        self._next_id = 1
        self._heard_at = time.monotonic()
        self._fragments: list[bytes] = []

    async def shake_hands(self, headers: dict[str, str], deadline: float) -> None:
        """Raises ProblemError, ConnectionFailed or BadReply where the server refuses, Timeout at the deadline."""
        protocol = self._protocol
        request = protocol.connect()
        request.headers.update(headers)
        protocol.send_request(request)
        await self._flush(deadline)
        while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
            data = await self.stream.read(_left(deadline))
            protocol.receive_data(data) if data else protocol.receive_eof()
        error = protocol.handshake_exc
        if isinstance(error, InvalidStatus):
            status = error.response.status_code
            with contextlib.suppress(ValueError, BadReply):
                raise problem_of(self._server, "the connection", codec.loads(bytes(error.response.body or b"")))
            if status in _AWAY:
                raise ConnectionFailed(f"{self._server} refused the connection with {status}")
            raise BadReply(self._server, f"status {status} for the WebSocket")
        if protocol.state is not State.OPEN:
            raise ConnectionFailed(f"{self._server}: the connection was refused: {error or 'it was closed'}")

    async def request(self, batch: Exchange, deadline: float) -> dict[str, Any]:
        """The reply to a batch; raises Timeout at the deadline, ConnectionFailed, BadReply, ClientClosed."""
        identity, one, began_at = self._next_id, _Waiting(), time.monotonic()
        self._next_id += 1
        self._waiting[identity] = one
        key = b"" if batch.key is None else b',"request_key":"%b"' % batch.key.encode()
        try:
            self._protocol.send_text(b'{"id":%d,"op":"batch","items":%b%b}' % (identity, batch.items(), key))
            await self._flush(deadline)
            one.sent = True
            while one.frame is None:
                if self.failure is not None:
                    raise self.failure
                self._reader = self._reader or one
                if self._reader is one:
                    await self._read(deadline)
                elif not await one.woken(_left(deadline)):
                    raise Timeout
            return one.frame
        except (RagenError, Canceled):
            raise
        except Timeout:
            if not one.sent or self._heard_at < began_at:
                self.end(ConnectionFailed(f"{self._server}: the connection is silent"))
            raise
        except OSError as error:
            raise self.end(ConnectionFailed(f"{self._server}: the connection broke: {error}")) from error
        except BaseException:
            # An interrupt may come while half a frame is sent or read.
            self.end(ConnectionFailed(f"{self._server}: the connection was interrupted"))
            raise
        finally:
            del self._waiting[identity]
            if self._reader is one:
                self._reader = next((other for other in self._waiting.values() if other.sent), None)
                if self._reader is not None:
                    self._reader.wake()

    async def _read(self, deadline: float) -> None:
        """Gives the next bytes to those that wait for them."""
        protocol = self._protocol
        data = await self.stream.read(_left(deadline))
        if data:
            self._heard_at = time.monotonic()
            protocol.receive_data(data)
        else:
            protocol.receive_eof()
        for event in protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._fragments.append(bytes(event.data))
                if event.fin:
                    whole, self._fragments = self._fragments, []
                    self._take(whole[0] if len(whole) == 1 else b"".join(whole))
        with contextlib.suppress(OSError):
            await self._flush(deadline)
        if not data or protocol.state is not State.OPEN:
            reason = protocol.close_exc if protocol.state is State.CLOSED else "the server closes it"
            self.end(ConnectionFailed(f"{self._server}: the connection ended: {reason}"))

    def _take(self, message: bytes) -> None:
        try:
            frame = codec.loads(message)
        except ValueError:
            frame = None
        if not isinstance(frame, dict):
            self.end(BadReply(self._server, repr(message[:100])))
            return
        identity = frame.get("id")
        if identity is None and len(self._waiting) == 1:
            # What the server could not read has no id.
            identity = next(iter(self._waiting))
        one = self._waiting.get(identity) if isinstance(identity, int) else None
        if one is not None:
            one.frame = frame
            one.wake()

    async def _flush(self, deadline: float) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data:
            await self.stream.write(data, _left(deadline))

    def end(self, failure: RagenError) -> RagenError:
        """Ends the connection for all that wait; the first failure counts, and is the answer."""
        self.failure = self.failure or failure
        self.stream.drop()
        for one in self._waiting.values():
            one.wake()
        return self.failure

    async def close(self) -> None:
        """Takes leave of the server; what is in progress ends with ClientClosed."""
        if self.failure is None:
            self.failure = _closed(self._server)
            with contextlib.suppress(OSError, Timeout):
                self._protocol.send_close()
                await self._flush(time.monotonic() + _CLOSING_S)
                await self.stream.close(_CLOSING_S)
            self.end(self.failure)


class AsyncWebSocketTransport:
    """Requests on one WebSocket, opened on first use and again after it broke; all that wait share one attempt at it.

    A socket that the server cut meanwhile is noticed at the next request, which is repeated under its key.
    """

    def __init__(self, settings: Settings):
        self._settings = settings
        self._connection: _AsyncConnection | None = None
        self._opening = Lock()
        self._closed = False

    async def exchange(self, batch: Exchange, timeout_s: float) -> Any:
        """The batch result, unread; raises ProblemError, ConnectionFailed, ReplyTimeout, BadReply, ClientClosed."""
        server, connection = self._settings.base_url, self._connection
        if connection is None or connection.failure is not None:
            connection = await self._opened()
        try:
            frame = await connection.request(batch, time.monotonic() + timeout_s)
        except Timeout as error:
            raise ReplyTimeout(f"{server} did not answer {batch.operation} within {timeout_s:g} s") from error
        if frame.get("ok") is True:
            return frame.get("result")
        raise problem_of(server, batch.operation, frame.get("error"))

    async def _opened(self) -> _AsyncConnection:
        async with self._opening:
            if self._connection is None or self._connection.failure is not None:
                self._connection = await self._open()
            return self._connection

    async def _open(self) -> _AsyncConnection:
        settings = self._settings
        server, seconds = settings.base_url, settings.connect_timeout_s
        uri, deadline = parse_uri(settings.websocket_url), time.monotonic() + seconds
        try:
            stream = await Stream.connect(uri.host, uri.port, uri.secure, seconds)
            try:
                connection = _AsyncConnection(settings, stream)
                await connection.shake_hands(settings.headers, deadline)
                if self._closed:
                    raise _closed(server)
                return connection
            except BaseException:
                stream.drop()
                raise
        except RagenError:
            raise
        except Timeout as error:
            raise ConnectionFailed(f"{server}: no connection within {seconds:g} s") from error
        except OSError as error:
            raise ConnectionFailed(f"{server}: no connection: {error or type(error).__name__}") from error

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            await self._connection.close()

    def drop(self) -> None:
        """Lets go of the connection at once, without a word to the server."""
        if self._connection is not None:
            self._connection.stream.drop()


AsyncTransport = AsyncHttpTransport | AsyncWebSocketTransport


def _closed(server: str) -> ClientClosed:
    return ClientClosed(f"the client of {server} was closed")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise Timeout
    return left
