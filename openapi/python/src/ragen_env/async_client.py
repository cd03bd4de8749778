"""The client for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from .async_transports import AsyncHttpTransport, AsyncTransport, AsyncWebSocketTransport
from .batches import Exchange, Item, RequestKeys, item, parts
from .errors import ClientClosed, ProblemError, RagenError
from .operations import AsyncOperations
from .retry import Retries, RetryPolicy
from .settings import Transport, settings_of


class AsyncClient(AsyncOperations):
    """Every operation of a server as a coroutine; any number may be under way.

    A request that is canceled may have been carried out. Give it a ``request_key`` where you mean to repeat it: under
    the same key it is carried out once. The settings are those of :class:`ragen_env.Client`.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        transport: Transport = "websocket",
        timeout_s: float = 60.0,
        connect_timeout_s: float = 5.0,
        retry: RetryPolicy | None = None,
    ):
        self.settings = settings_of(base_url, token, transport, timeout_s, connect_timeout_s, retry)
        self._keys = RequestKeys()
        self._open: AsyncTransport | None = None
        self._closed = False
        self._answered = False

    def __repr__(self) -> str:
        return f"AsyncClient({self.settings.base_url!r})"

    async def batch(self, items: Sequence[dict[str, Any]]) -> list[Any]:
        """Many operations in one request, each an object with ``op`` and its fields.

        For each its result, or the ProblemError that it came to.
        """
        return await self.exchange([item(one["op"], {k: v for k, v in one.items() if k != "op"}) for one in items])

    async def exchange(self, items: Sequence[Item]) -> list[Any]:
        """Encoded operations in one request (several where a server would not take them at once).

        Raises ProblemError where the batch as a whole was refused, ServerUnavailable, ReplyTimeout, BadReply,
        ClientClosed.
        """
        replies: list[Any] = []
        for part in parts(items):
            replies += await self._exchange(part)
        return replies

    async def _exchange(self, items: Sequence[Item]) -> list[Any]:
        settings = self.settings
        batch = Exchange(settings.base_url, items, self._keys.next())
        retries = Retries(settings.base_url, settings.retry, None if self._answered else time.monotonic())
        while True:
            if self._closed:
                raise ClientClosed(f"the client of {settings.base_url} was closed")
            try:
                failure: Exception | None = batch.take(await self._transport().exchange(batch))
                self._answered = True
                if failure is None:
                    return batch.replies
            except RagenError as error:
                failure = error
            await asyncio.sleep(retries.pause(failure))

    def _transport(self) -> AsyncTransport:
        if self._open is None:
            websocket = self.settings.transport == "websocket"
            self._open = AsyncWebSocketTransport(self.settings) if websocket else AsyncHttpTransport(self.settings)
        return self._open

    async def _call(
        self, op: str, fields: dict[str, Any], optional: dict[str, Any], request_key: str | None = None
    ) -> Any:
        given = {name: value for name, value in optional.items() if value is not None}
        (reply,) = await self.exchange([item(op, {**fields, **given}, request_key)])
        if isinstance(reply, ProblemError):
            raise reply
        return reply

    async def close(self) -> None:
        """Ends all connections and what is under way; sessions stay open until their time is over."""
        self._closed = True
        if self._open is not None:
            await self._open.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
