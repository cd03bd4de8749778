"""The service's routes: the protocol `webhook` of ragen's remote environments."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .episodes import Call, Reply, detail_of, refusal
from .forms import Json
from .lanes import Full, ProcessLane, Processes, ThreadLane, Threads

_MAX_BODY_BYTES = 1_100_000
_MAX_ID = 200


class BadRequest(Exception):
    """A body that the protocol does not have."""


def application(sessions: Sessions, definition: dict[str, Json]) -> Starlette:
    """`POST /reset`, `/step` and `/close`, and `GET /`, which shows the definition."""

    async def reset(body: dict[str, Any]) -> Reply:
        seed = body.get("seed")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
            raise BadRequest(f"seed must be a whole number from 0, got {json.dumps(seed)[:100]}")
        return await sessions.reset(_session_id(body), seed)

    async def step(body: dict[str, Any]) -> Reply:
        if "action" not in body:
            raise BadRequest("the body has no action")
        step = body.get("step")
        if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
            raise BadRequest(f"step must be a whole number, got {json.dumps(step)[:100]}")
        return await sessions.step(_session_id(body), body["action"], step)

    async def close(body: dict[str, Any]) -> Reply:
        return await sessions.close(_session_id(body))

    async def about(_: Request) -> Response:
        return JSONResponse({"definition": definition, "sessions": len(sessions)})

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        expiring = asyncio.create_task(sessions.expire())
        yield
        expiring.cancel()
        await asyncio.get_running_loop().run_in_executor(None, sessions.stop)

    handlers = {"/reset": reset, "/step": step, "/close": close}
    routes = [Route(path, _answering(handler), methods=["POST"]) for path, handler in handlers.items()]
    return Starlette(routes=[*routes, Route("/", about)], lifespan=lifespan)


def _answering(handler: Callable[[dict[str, Any]], Awaitable[Reply]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            reply = await handler(await _body(request))
        except BadRequest as error:
            reply = refusal(400, str(error))
        except asyncio.CancelledError:
            reply = refusal(503, "the service is ending")
        return Response(reply.body, reply.status, media_type="application/json")

    return answer


async def _body(request: Request) -> dict[str, Any]:
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _MAX_BODY_BYTES:
            raise BadRequest(f"the body has more than {_MAX_BODY_BYTES:,} bytes")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def _session_id(body: dict[str, Any]) -> str:
    session_id = body.get("session_id")
    if not isinstance(session_id, str) or not 0 < len(session_id) <= _MAX_ID:
        raise BadRequest(f"session_id must be a string of 1 to {_MAX_ID} characters")
    return session_id


#: Sessions that ended are remembered, so that a late request gets the reason.
_MAX_ENDED = 4096
_LONGEST_SWEEP_S = 30.0


@dataclass
class Session:
    lane: ThreadLane | ProcessLane
    used: float
    steps: int = 0
    calls: int = 0
    """Calls in progress."""


class Sessions:
    """Every session by its id. Only the event loop's thread may use it."""

    def __init__(self, lanes: Threads | Processes, max_sessions: int, idle_s: float):
        self._lanes = lanes
        self._max_sessions = max_sessions
        self._idle_s = idle_s
        self._open: dict[str, Session] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    async def reset(self, session_id: str, seed: int | None) -> Reply:
        session = self._open.get(session_id)
        if session is not None and session.lane.lost is not None:
            self._end(session_id, session, session.lane.lost)
            session = None
        if session is None:
            if len(self._open) >= self._max_sessions:
                return refusal(429, f"{self._max_sessions:,} sessions are open, the limit (--max-sessions): close some")
            try:
                lane = self._lanes.acquire()
            except Full as error:
                return refusal(503, str(error))
            session = self._open[session_id] = Session(lane, time.monotonic())
            self._ended.pop(session_id, None)
        session.steps = 0
        return await self._call(session_id, session, Call("reset", session_id, seed))

    async def step(self, session_id: str, action: Any, step: int | None) -> Reply:
        session = self._open.get(session_id)
        if session is None:
            reason = self._ended.get(session_id)
            if reason is None:
                return refusal(404, f"there is no session {session_id!r}: POST /reset opens it")
            return refusal(410, f"session {session_id!r} has ended: {reason}")
        if step is not None and step != session.steps + 1:
            return refusal(409, f"step {step} came where step {session.steps + 1} was expected")
        session.steps += 1
        return await self._call(session_id, session, Call("step", session_id, action))

    async def close(self, session_id: str) -> Reply:
        session = self._open.get(session_id)
        if session is None:
            return Reply(200, b"{}")
        return await self._call(session_id, session, Call("close", session_id))

    async def _call(self, session_id: str, session: Session, call: Call) -> Reply:
        session.calls += 1
        try:
            reply = await session.lane.call(call)
        finally:
            session.calls -= 1
            session.used = time.monotonic()
        if reply.over or session.lane.lost is not None:
            over = "it was closed" if call.op == "close" else "its episode is over"
            self._end(session_id, session, over if reply.status == 200 else detail_of(reply))
        return reply

    def _end(self, session_id: str, session: Session, reason: str) -> None:
        if self._open.get(session_id) is not session:
            return
        del self._open[session_id]
        self._lanes.release(session.lane)  # type: ignore[arg-type]
        self._ended[session_id] = reason
        while len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)

    async def expire(self) -> None:
        """Closes sessions that nobody uses, until it is canceled."""
        while True:
            await asyncio.sleep(min(self._idle_s / 4, _LONGEST_SWEEP_S))
            before = time.monotonic() - self._idle_s
            for session_id, session in list(self._open.items()):
                if session.calls == 0 and session.used < before:
                    await session.lane.call(Call("close", session_id))
                    self._end(session_id, session, f"nobody used it for {self._idle_s:g} s (--idle)")

    def stop(self) -> None:
        """Ends every lane, and waits a moment for environments to close."""
        for session in self._open.values():
            session.lane.stop()
        self._lanes.stop()
