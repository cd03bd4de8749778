"""One attempt at a batch, over HTTP or a WebSocket, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from . import codec
from .batches import Exchange, problem_of
from .errors import BadReply, ClientClosed, ConnectionFailed, ReplyTimeout
from .settings import MAX_REPLY_BYTES, Settings
from .transports import http_body, http_failure, http_headers, read_http, refusal

_MAX_CONNECTIONS = 100


class AsyncTransport(Protocol):
    async def exchange(self, batch: Exchange) -> Any:
        """The batch result, unread.

        Raises ProblemError, ConnectionFailed, ReplyTimeout, BadReply.
        """

    async def close(self) -> None: ...


class AsyncHttpTransport:
    """``POST /v1/batch`` over connections that are kept alive, many at once."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._client = httpx.AsyncClient(
            headers=settings.headers,
            timeout=httpx.Timeout(settings.timeout_s, connect=settings.connect_timeout_s),
            limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
        )

    async def exchange(self, batch: Exchange) -> Any:
        server = self._settings.base_url
        try:
            reply = await self._client.post(
                f"{server}/v1/batch", content=http_body(batch), headers=http_headers(batch)
            )
        except Exception as error:
            raise http_failure(server, batch.operation, error) from error
        return read_http(server, batch.operation, reply)

    async def close(self) -> None:
        await self._client.aclose()


class AsyncWebSocketTransport:
    """Many requests in flight on one WebSocket, identified by id, answered in any order.

    It is opened on first use and again after it broke; all waiting requests share one attempt to connect. A request
    that is canceled leaves the others alone: its reply is dropped when it comes.
    """

    def __init__(self, settings: Settings):
        self._settings = settings
        self._server = settings.base_url
        self._pending: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._next_id = 1
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def exchange(self, batch: Exchange) -> Any:
        connection = self._socket or await self._opened()
        identity = self._next_id
        self._next_id += 1
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[identity] = (batch.operation, reply)
        key = "" if batch.key is None else f',"request_key":"{batch.key}"'
        try:
            await connection.send(f'{{"id":{identity},"op":"batch","items":{batch.items().decode()}{key}}}')
            return await asyncio.wait_for(reply, self._settings.timeout_s)
        except asyncio.TimeoutError as error:
            raise ReplyTimeout(
                f"{self._server} did not answer {batch.operation} within {self._settings.timeout_s:g} s"
            ) from error
        except ConnectionClosed as error:
            raise ConnectionFailed(f"{self._server}: the connection broke: {error}") from error
        finally:
            self._pending.pop(identity, None)

    async def _opened(self) -> ClientConnection:
        async with self._opening:
            if self._socket is not None:
                return self._socket
            settings = self._settings
            try:
                connection = await connect(
                    settings.websocket_url,
                    additional_headers=settings.headers,
                    subprotocols=[Subprotocol("ragen.json")],
                    compression=None,
                    max_size=MAX_REPLY_BYTES,
                    open_timeout=settings.connect_timeout_s,
                    proxy=None,
                    process_exception=lambda error: error,
                )
            except InvalidHandshake as error:
                raise refusal(self._server, error) from error
            except (OSError, asyncio.TimeoutError) as error:
                raise ConnectionFailed(f"{self._server}: no connection: {error or type(error).__name__}") from error
            self._socket = connection
            self._reader = asyncio.create_task(self._read(connection))
            return connection

    async def _read(self, connection: ClientConnection) -> None:
        failure: Exception = ConnectionFailed(f"{self._server}: the connection ended")
        try:
            async for message in connection:
                self._receive(message)
        except ConnectionClosed as error:
            failure = ConnectionFailed(f"{self._server}: the connection broke: {error}")
        except BadReply as error:
            failure = error
        except asyncio.CancelledError:
            failure = ClientClosed(f"the client of {self._server} was closed")
        finally:
            if self._socket is connection:
                self._socket = None
            pending, self._pending = self._pending, {}
            for _, reply in pending.values():
                if not reply.done():
                    reply.set_exception(failure)
            with contextlib.suppress(Exception):
                await connection.close()

    def _receive(self, message: str | bytes) -> None:
        try:
            frame = codec.loads(message)
        except ValueError as error:
            raise BadReply(self._server, repr(message[:100])) from error
        if not isinstance(frame, dict):
            raise BadReply(self._server, repr(message[:100]))
        operation, reply = self._pending.get(frame.get("id", 0) or 0, ("a frame", None))
        if reply is None or reply.done():
            return
        if frame.get("ok") is True:
            reply.set_result(frame.get("result"))
            return
        try:
            reply.set_exception(problem_of(self._server, operation, frame.get("error")))
        except BadReply as error:
            reply.set_exception(error)

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
            self._reader = None
