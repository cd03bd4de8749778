"""The service's routes: the protocol `webhook` of ragen's remote environments."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .episodes import Reply, refusal
from .forms import Json
from .sessions import Sessions

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
