"""The sessions of a vectorized environment, of which each request asks all or some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium

from . import codec
from .batches import Item, item
from .client import Client, OpenSessions
from .errors import SESSION_GONE, ProblemError


class VectorSessions(OpenSessions):
    """Sessions in the order of their environments; none before the first :meth:`open`."""

    def __init__(self, client: Client, fields: dict[str, Any]):
        super().__init__(client)
        self._fields = fields
        self._heads: list[bytes] = []

    def open(self, seeds: list[int | None], options: dict[str, Any] | None) -> list[Any]:
        """Opens a session for each seed."""
        sessions = self._create(seeds, options)
        self.take([session["session_id"] for session in sessions])
        return sessions

    def take(self, session_ids: Sequence[str]) -> None:
        super().take(session_ids)
        self._heads = [
            codec.dumps({"op": "step", "session_id": session_id})[:-1] + b',"action":' for session_id in session_ids
        ]

    def reset(self, chosen: list[int], seeds: list[int | None], options: dict[str, Any] | None) -> list[Any]:
        """Resets some; those that are gone are opened again, under other ids."""
        items = [self.reset_item(index, seed, options) for index, seed in zip(chosen, seeds)]
        replies = self.client.exchange(items)
        gone = [at for at, reply in enumerate(replies) if _is_gone(reply)]
        if gone:
            session_ids = list(self.ids)
            for at, session in zip(gone, self._create([seeds[at] for at in gone], options)):
                session_ids[chosen[at]] = session["session_id"]
                replies[at] = session
            self.take(session_ids)
        return checked(replies)

    def _create(self, seeds: list[int | None], options: dict[str, Any] | None) -> list[Any]:
        items = [item("create", {**self._fields, **_given(seed=seed, options=options)}) for seed in seeds]
        replies = self.client.exchange(items)
        if any(isinstance(reply, ProblemError) for reply in replies):
            self.client.abandon([reply["session_id"] for reply in replies if not isinstance(reply, ProblemError)])
        return checked(replies)

    def reset_item(self, index: int, seed: int | None, options: dict[str, Any] | None = None) -> Item:
        return item("reset", {"session_id": self.ids[index], **_given(seed=seed, options=options)})

    def step_items(self, actions: list[bytes]) -> list[Item]:
        """A step of each session, by actions in JSON."""
        return [Item("step", head + action + b"}", True) for head, action in zip(self._heads, actions)]

    def ask_each(self, op: str, fields: dict[str, Any]) -> list[Any]:
        """Asks each session the same."""
        if not self.ids:
            raise gymnasium.error.ResetNeeded("call reset() first")
        return checked(self.client.exchange([item(op, {"session_id": one, **fields}) for one in self.ids]))


def checked(replies: list[Any]) -> list[Any]:
    """Raises the first ProblemError among replies."""
    for reply in replies:
        if isinstance(reply, ProblemError):
            raise reply
    return replies


def _is_gone(reply: Any) -> bool:
    return isinstance(reply, ProblemError) and reply.code in SESSION_GONE


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
