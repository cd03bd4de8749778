"""Requests and replies in the form of batches, which every transport carries."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from . import codec
from .errors import BadReply, ProblemError
from .operations import KEYED
from .retry import is_final

MAX_ITEMS = 4096
"""Most items of one batch; the default of the server's ``--max-batch-items``."""
MAX_BYTES = 2 * 1024 * 1024
"""Longest batch in bytes; half of the default of the server's ``--body-limit-bytes``."""
_EXCERPT = 200


class RequestKeys:
    """Makes keys that no other client makes: a random name and a counter."""

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex
        self._count = itertools.count()

    def next(self) -> str:
        return f"{self._name}-{next(self._count)}"


class Item:
    """One operation on its way to the server, encoded."""

    __slots__ = ("keyed", "operation", "text")

    def __init__(self, operation: str, text: bytes, keyed: bool):
        self.operation = operation
        self.text = text
        self.keyed = keyed


def item(op: str, fields: dict[str, Any], request_key: str | None = None) -> Item:
    """Raises ValueError or TypeError where a field is not JSON."""
    values = {"op": op, **fields}
    if request_key is not None:
        values["request_key"] = request_key
    return Item(op, codec.dumps(values), op in KEYED and request_key is None and "request_key" not in fields)


def parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The items in batches that a server takes."""
    start = size = 0
    for index, one in enumerate(items):
        if index > start and (index - start >= MAX_ITEMS or size + len(one.text) > MAX_BYTES):
            yield items[start:index]
            start, size = index, 0
        size += len(one.text) + 1
    if start < len(items):
        yield items[start:]


class Exchange:
    """A batch: what of it is still to be sent, and the outcome of the rest."""

    def __init__(self, server: str, items: Sequence[Item], key: str):
        self._server = server
        self._items = items
        self._key = key
        self._pending: list[int] | None = None
        self.replies: list[Any] = []
        """For each item its result, or the ProblemError that repeating does not help."""

    @property
    def operation(self) -> str:
        return self._items[0].operation if len(self._items) == 1 else "batch"

    @property
    def key(self) -> str | None:
        """The request key of the whole batch; None where the items that are left carry their own."""
        return self._key if self._pending is None else None

    def items(self) -> bytes:
        """A JSON list of the items that are to be sent."""
        if self._pending is None:
            return b"[%b]" % b",".join([one.text for one in self._items])
        return b"[%b]" % b",".join([self._with_key(index) for index in self._pending])

    def _with_key(self, index: int) -> bytes:
        # The server gives the item at a position of a batch the key `batch key#position`.
        one = self._items[index]
        if not one.keyed:
            return one.text
        return one.text[:-1] + b',"request_key":"%b#%d"}' % (self._key.encode(), index)

    def take(self, value: Any) -> ProblemError | None:
        """Takes a batch result; the answer is a failure after which items have to be sent again, or None.

        Raises BadReply where the value is none.
        """
        results = value.get("results") if isinstance(value, dict) else None
        expected = len(self._items) if self._pending is None else len(self._pending)
        if not isinstance(results, list) or len(results) != expected:
            raise BadReply(self._server, f"{_excerpt(value)} for a batch of {expected}")
        if self._pending is None:
            try:
                self.replies = [entry["result"] for entry in results]
                return None
            except (KeyError, TypeError):
                self.replies = [None] * expected
        positions = range(expected) if self._pending is None else self._pending
        return self._take_failures(list(positions), results)

    def _take_failures(self, positions: list[int], results: list[Any]) -> ProblemError | None:
        failure: ProblemError | None = None
        again: list[int] = []
        for position, entry in zip(positions, results):
            if not isinstance(entry, dict):
                raise BadReply(self._server, _excerpt(entry))
            if entry.get("ok") is True:
                self.replies[position] = entry.get("result")
                continue
            problem = problem_of(self._server, self._items[position].operation, entry.get("error"))
            if is_final(problem):
                self.replies[position] = problem
            else:
                failure = problem
                again.append(position)
        if failure is not None:
            self._pending = again
        return failure


def problem_of(server: str, operation: str, value: Any, retry_after_s: float | None = None) -> ProblemError:
    """Raises BadReply where the value is not a problem document."""
    if isinstance(value, dict) and all(name in value for name in ("status", "code", "detail")):
        value.setdefault("retryable", False)
        return ProblemError(server, operation, value, retry_after_s)  # type: ignore[arg-type]
    raise BadReply(server, _excerpt(value))


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
