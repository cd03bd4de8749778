"""The client for programs with threads."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from .batches import Exchange, Item, RequestKeys, item, parts
from .errors import ClientClosed, RagenError
from .retry import NO_RETRY, RetryPolicy
from .settings import Settings, Transport, settings_of
from .sync_client import SyncClient
from .sync_runtime import Event
from .sync_transports import SyncTransport

_CLOSING_S = 2.0


class Client(SyncClient):
    """Every operation of a server, for any number of threads.

    Requests are repeated until they succeed, the failure is final or the server stays away too long. Every request
    that changes something carries a key, so that nothing happens twice. After a fork both processes continue, each with
    its own connections, and environments close only the sessions that their process opened.

    Args:
        base_url: where the server is; the variable RAGEN_URL or http://127.0.0.1:8080 where it is not given
        token: sent as bearer token; the variable RAGEN_TOKEN where it is not given
        transport: one WebSocket for each thread that uses the client at a time, or HTTP with keep-alive
        timeout_s: how long a reply is waited for, in one attempt
    """

    def _start(self, settings: Settings) -> None:
        super()._start(settings)
        self._abandoned: deque[str] = deque()
        # No lock guards the idle transports: a garbage collection may close environments while it is held.
        self._idle: deque[SyncTransport] = deque()
        _clients.add(self)

    def exchange(self, items: Sequence[Item]) -> list[Any]:
        if self._abandoned:
            self._close_abandoned()
        return super().exchange(items)

    def _attempt(self, batch: Exchange, timeout_s: float) -> Any:
        try:
            transport = self._idle.pop()
        except IndexError:
            transport = self._transport()
        try:
            return transport.exchange(batch, timeout_s)
        finally:
            if self._closed.is_set():
                transport.close()
            else:
                self._idle.append(transport)

    def abandon(self, session_ids: Sequence[str]) -> None:
        """Has sessions closed with the next request, or when the program ends. Takes no time and never fails."""
        if session_ids and not self._closed.is_set():
            self._abandoned.extend(session_ids)
            _owing.add(self)

    def flush(self) -> None:
        """Closes the sessions that were abandoned, if the server is there; it takes two seconds at most."""
        if self._abandoned and not self._closed.is_set():
            self._close_abandoned()

    def _close_abandoned(self) -> None:
        _owing.discard(self)
        ids: list[str] = []
        with contextlib.suppress(IndexError):
            while True:
                ids.append(self._abandoned.popleft())
        # Sessions that this does not reach expire after their idle time.
        with contextlib.suppress(RagenError):
            for part in parts([item("close", {"session_id": session_id}) for session_id in ids]):
                self._exchange(part, NO_RETRY, _CLOSING_S)

    def close(self) -> None:
        """Ends all connections; sessions stay open until their time is over, unless they were abandoned."""
        self.flush()
        self._closed.set()
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _after_fork(self) -> None:
        """In the child: the parent keeps its connections, its keys and the sessions it has to close."""
        for transport in self._idle:
            transport.drop()
        self._idle = deque()
        self._abandoned.clear()
        _owing.discard(self)
        self._keys = RequestKeys()
        closed, self._closed = self._closed.is_set(), Event()
        if closed:
            self._closed.set()


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
#: Clients that have sessions to close: these live until they have done so, though nobody else may hold them any more.
_owing: set[Client] = set()
_shared: weakref.WeakValueDictionary[Settings, Client] = weakref.WeakValueDictionary()


def shared_client(
    base_url: str | None = None,
    *,
    token: str | None = None,
    transport: Transport = "websocket",
    timeout_s: float = 60.0,
    retry: RetryPolicy | None = None,
) -> Client:
    """The client of these settings that others of this process use as well."""
    settings = settings_of(base_url, token, transport, timeout_s, 5.0, retry)
    client = _shared.get(settings)
    if client is None or client._closed.is_set():
        client = Client.__new__(Client)
        client._start(settings)
        _shared[settings] = client
    return client


def _close_all() -> None:
    for client in list(_clients):
        with contextlib.suppress(Exception):
            client.close()


def _forked() -> None:
    for client in list(_clients):
        client._after_fork()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class OpenSessions:
    """Sessions in the order of their environments. After a fork each process closes only those that it opened."""

    def __init__(self, client: Client):
        self.client = client
        self.ids: list[str] = []
        #: Of each session, the process that opened it.
        self._openers: dict[str, int] = {}

    def take(self, session_ids: Sequence[str]) -> None:
        """From now on these are the sessions; this process opened those that are new."""
        process = os.getpid()
        self.ids = list(session_ids)
        self._openers = {session_id: self._openers.get(session_id, process) for session_id in self.ids}

    def abandon(self) -> None:
        """Has the sessions closed with a later request, and forgets them; other processes keep theirs."""
        process = os.getpid()
        self.client.abandon([session_id for session_id, opener in self._openers.items() if opener == process])
        self.take([])

    def close(self) -> None:
        """The same at once."""
        self.abandon()
        self.client.flush()
