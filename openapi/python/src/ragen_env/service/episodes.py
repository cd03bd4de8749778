"""The episodes of one thread or process, and the replies to their requests as bytes."""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import dataclass
from typing import Any, Literal

from .worlds import UnusableWorld, World, WorldFault, WorldSource, begun, close

#: Bytes of a reply that the environment server is sure to take.
MAX_REPLY_BYTES = 250_000
_MAX_IDLE = 16


@dataclass(frozen=True)
class Call:
    """A request to one episode."""

    op: Literal["reset", "step", "close"]
    session_id: str
    value: Any = None
    """The seed of a reset, the action of a step."""


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    over: bool = False
    """The episode has ended, and its environment is free again."""


def refusal(status: int, detail: str, over: bool = False) -> Reply:
    return Reply(status, json.dumps({"detail": detail}).encode(), over)


def detail_of(reply: Reply) -> str:
    """Why a request was refused."""
    return str(json.loads(reply.body)["detail"])


class Episodes:
    """Plays episodes one call at a time. Environments are reset and used again; one that failed is given up."""

    def __init__(self, source: WorldSource):
        self._source = source
        self._playing: dict[str, World] = {}
        self._idle: list[World] = []

    def carry_out(self, call: Call) -> Reply:
        """Never raises, unless the environment ends the process."""
        try:
            return self._carry_out(call)
        except (WorldFault, UnusableWorld) as error:
            if error.__cause__ is not None:
                traceback.print_exception(error.__cause__, file=sys.stderr)
            self._give_up(call.session_id)
            return refusal(422, str(error), over=True)

    def _carry_out(self, call: Call) -> Reply:
        if call.op == "close":
            self._free(call.session_id)
            return Reply(200, b"{}", over=True)
        if call.op == "reset":
            world = self._playing.pop(call.session_id, None)
            world = world or (self._idle.pop() if self._idle else self._source.make())
            self._playing[call.session_id], reply = begun(self._source, world, call.value)
        elif call.session_id in self._playing:
            reply = self._playing[call.session_id].step(call.value)
        else:
            return refusal(410, "the episode is over: POST /reset begins another", over=True)
        body = json.dumps(reply, allow_nan=False, separators=(",", ":")).encode()
        if len(body) > MAX_REPLY_BYTES:
            name = self._playing[call.session_id].name
            raise WorldFault(
                f"{name}.{call.op} gave {len(body):,} bytes of observation and info, {MAX_REPLY_BYTES:,} are the limit: "
                "shorten the observation, or show it as text"
            )
        over = bool(reply.get("terminated") or reply.get("truncated"))
        if over:
            self._free(call.session_id)
        return Reply(200, body, over)

    def _free(self, session_id: str) -> None:
        world = self._playing.pop(session_id, None)
        if world is None:
            return
        if len(self._idle) < _MAX_IDLE:
            self._idle.append(world)
        else:
            close(world)

    def _give_up(self, session_id: str) -> None:
        world = self._playing.pop(session_id, None)
        if world is not None:
            close(world)

    def close(self) -> None:
        for world in [*self._playing.values(), *self._idle]:
            close(world)
        self._playing.clear()
        self._idle.clear()
