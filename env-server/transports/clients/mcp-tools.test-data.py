"""Plays an environment with the official client of the Model Context Protocol, and prints what it saw."""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def play(url):
    async with streamable_http_client(url) as (read, write, *_):
        async with ClientSession(read, write) as session:
            await session.initialize()
            listed = await session.list_tools()
            calls = [("reset", {"seed": 1}), ("step", {"action": "add"}), ("valid_actions", {}), ("step", {"action": "fly"})]
            results = [await session.call_tool(name, arguments) for name, arguments in calls]
            return {
                "tools": [tool.name for tool in listed.tools],
                "results": [result.model_dump(mode="json", by_alias=True) for result in results],
            }


async def play_stateless(url):
    """The client of revision 2026-07-28, where calls name the session."""
    try:
        from mcp.client.client import Client
    except ImportError:
        return None
    async with Client(url) as client:
        begun = (await client.call_tool("reset", {"seed": 1})).model_dump(mode="json", by_alias=True)
        session_id = begun["structuredContent"]["session_id"]
        stepped = await client.call_tool("step", {"session_id": session_id, "action": "add"})
        await client.call_tool("close_session", {"session_id": session_id})
        return stepped.model_dump(mode="json", by_alias=True)


url = sys.argv[1]
print(json.dumps({"play": asyncio.run(play(url)), "stateless": asyncio.run(play_stateless(url))}))
