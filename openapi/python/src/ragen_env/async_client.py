"""The client for asyncio."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeVar

from .async_runtime import Event, wait
from .async_transports import AsyncHttpTransport, AsyncTransport, AsyncWebSocketTransport
from .batches import Exchange, Item, RequestKeys, item, parts
from .errors import ClientClosed, ProblemError, RagenError
from .operations import AsyncOperations
from .retry import Retries, RetryPolicy
from .settings import Settings, Transport, settings_of

_Self = TypeVar("_Self", bound="AsyncClient")


class AsyncClient(AsyncOperations):
    """Every operation of a server as a coroutine; any number may be in progress.

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
        self._start(settings_of(base_url, token, transport, timeout_s, connect_timeout_s, retry))

    def _start(self, settings: Settings) -> None:
        self.settings = settings
        self._answered = False
        self._keys = RequestKeys()
        self._closed = Event()
        self._shared: AsyncTransport | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.base_url!r})"

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
            replies += await self._exchange(part, self.settings.retry, self.settings.timeout_s)
        return replies

    async def _exchange(self, items: Sequence[Item], policy: RetryPolicy, timeout_s: float) -> list[Any]:
        server = self.settings.base_url
        batch = Exchange(server, items, self._keys.next())
        retries: Retries | None = None
        first_contact_at = None if self._answered else time.monotonic()
        while not self._closed.is_set():
            try:
                failure: Exception | None = batch.take(await self._attempt(batch, timeout_s))
                self._answered = True
                if failure is None:
                    return batch.replies
            except ClientClosed:
                raise
            except RagenError as error:
                failure = error
            retries = retries or Retries(server, policy, first_contact_at)
            await wait(self._closed, retries.pause(failure))
        raise ClientClosed(f"the client of {server} was closed")

    async def _attempt(self, batch: Exchange, timeout_s: float) -> Any:
        self._shared = self._shared or self._transport()
        return await self._shared.exchange(batch, timeout_s)

    def _transport(self) -> AsyncTransport:
        http = self.settings.transport == "http"
        return AsyncHttpTransport(self.settings) if http else AsyncWebSocketTransport(self.settings)

    async def _call(
        self, op: str, fields: dict[str, Any], optional: dict[str, Any], request_key: str | None = None
    ) -> Any:
        given = {name: value for name, value in optional.items() if value is not None}
        (reply,) = await self.exchange([item(op, {**fields, **given}, request_key)])
        if isinstance(reply, ProblemError):
            raise reply
        return reply

    async def close(self) -> None:
        """Ends all connections and what is in progress; sessions stay open until their time is over."""
        self._closed.set()
        if self._shared is not None:
            await self._shared.close()

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
