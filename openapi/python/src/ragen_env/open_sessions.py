"""The sessions that an environment has open."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .client import Client


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
