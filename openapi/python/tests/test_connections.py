"""Many requests on one WebSocket of an AsyncClient, and servers that behave badly on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

import ragen_env

QUICK = ragen_env.RetryPolicy(base_s=0.01, patience_s=0.5, attempts=2)
Answer = Callable[[ServerConnection, int, dict[str, Any]], Awaitable[None]]


async def answered(connection: ServerConnection, identity: int) -> None:
    await connection.send(json.dumps({"id": identity, "ok": True, "result": {"results": [{"ok": True, "result": identity}]}}))


def play(answer: Answer, work: Callable[[ragen_env.AsyncClient], Awaitable[None]], **settings: Any) -> int:
    """Does the work with a server that calls ``answer`` for each frame; the answer is how many connections it took."""
    connections = 0

    async def handle(connection: ServerConnection) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(Exception):
            async for message in connection:
                frame = json.loads(message)
                await answer(connection, frame["id"], frame["items"][0])

    async def run() -> None:
        async with serve(handle, "127.0.0.1", 0, subprotocols=[Subprotocol("ragen.json")]) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            async with ragen_env.AsyncClient(f"http://127.0.0.1:{port}", retry=QUICK, **settings) as client:
                await work(client)

    asyncio.run(asyncio.wait_for(run(), 20))
    return connections


def test_replies_in_any_order_reach_those_who_asked() -> None:
    held: list[int] = []

    async def backwards(connection: ServerConnection, identity: int, _: dict[str, Any]) -> None:
        held.append(identity)
        if len(held) == 20:
            for one in reversed(held):
                await answered(connection, one)

    async def work(client: ragen_env.AsyncClient) -> None:
        replies: list[Any] = await asyncio.gather(*(client.get(f"s{index}") for index in range(20)))
        assert replies == list(range(1, 21))

    assert play(backwards, work) == 1


def test_a_reply_is_not_kept_waiting_by_a_slower_one() -> None:
    async def but_the_first(connection: ServerConnection, identity: int, fields: dict[str, Any]) -> None:
        if fields["session_id"] != "slow":
            await answered(connection, identity)

    async def work(client: ragen_env.AsyncClient) -> None:
        slow = asyncio.create_task(client.get("slow"))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        for _ in range(5):
            await asyncio.gather(*(client.get("s") for _ in range(10)))
        assert time.monotonic() - began < 1
        slow.cancel()

    assert play(but_the_first, work) == 1


def test_whoever_reads_may_be_canceled_or_out_of_time() -> None:
    held: list[int] = []

    async def last(connection: ServerConnection, identity: int, fields: dict[str, Any]) -> None:
        held.append(identity)
        if fields["session_id"] == "last":
            for one in held:
                await answered(connection, one)

    async def work(client: ragen_env.AsyncClient) -> None:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(client.get(f"s{index}")) for index in range(4)]
        await asyncio.sleep(0.05)
        for task in tasks[:3]:
            task.cancel()
            await asyncio.sleep(0)
        reply: Any = await client.get("last")
        assert reply == 5
        assert await tasks[3] == 4
        assert all(task.cancelled() for task in tasks[:3])

    assert play(last, work) == 1


def test_a_connection_on_which_nothing_comes_is_replaced() -> None:
    seen: list[ServerConnection] = []

    async def second(connection: ServerConnection, identity: int, _: dict[str, Any]) -> None:
        seen.append(connection)
        if connection is not seen[0]:
            await answered(connection, identity)

    async def work(client: ragen_env.AsyncClient) -> None:
        replies: list[Any] = await asyncio.gather(*(client.get("s") for _ in range(5)))
        assert len(replies) == 5

    assert play(second, work, timeout_s=0.3) == 2


@pytest.mark.parametrize("junk", ["no json", "[1]", b"\x00\xff", "3"])
def test_junk_ends_every_request_that_waits_with_bad_reply(junk: str | bytes) -> None:
    async def answer(connection: ServerConnection, _: int, __: dict[str, Any]) -> None:
        await connection.send(junk)

    async def work(client: ragen_env.AsyncClient) -> None:
        replies = await asyncio.gather(*(client.get("s") for _ in range(5)), return_exceptions=True)
        assert [type(one).__name__ for one in replies] == ["BadReply"] * 5

    assert play(answer, work) == 1


def test_a_problem_without_an_id_is_that_of_the_only_request() -> None:
    async def answer(connection: ServerConnection, _: int, __: dict[str, Any]) -> None:
        refused = {"status": 400, "code": "invalid_frame", "title": "", "detail": "what is that", "retryable": False}
        await connection.send(json.dumps({"ok": False, "error": refused}))

    async def work(client: ragen_env.AsyncClient) -> None:
        with pytest.raises(ragen_env.ProblemError, match="what is that"):
            await client.get("s")

    assert play(answer, work) == 1


def test_closing_ends_what_is_under_way() -> None:
    async def never(_: ServerConnection, __: int, ___: dict[str, Any]) -> None:
        pass

    async def work(client: ragen_env.AsyncClient) -> None:
        tasks = [asyncio.create_task(client.get("s")) for _ in range(3)]
        await asyncio.sleep(0.05)
        await client.close()
        for task in tasks:
            with pytest.raises(ragen_env.ClientClosed):
                await task

    assert play(never, work) == 1


def test_a_large_batch_is_sent_while_the_server_reads_slowly() -> None:
    async def slowly(connection: ServerConnection, identity: int, _: dict[str, Any]) -> None:
        await asyncio.sleep(0.05)
        await answered(connection, identity)

    async def work(client: ragen_env.AsyncClient) -> None:
        # Eight megabytes: more than the buffers of both ends hold.
        replies: list[Any] = await asyncio.gather(*(client.step("s", "x" * 900_000) for _ in range(9)))
        assert sorted(replies) == list(range(1, 10))

    assert play(slowly, work) == 1
