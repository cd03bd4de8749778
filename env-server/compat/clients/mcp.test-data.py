"""Plays the counter with the official client of the Model Context Protocol, and prints what it saw."""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def play(url):
    async with streamable_http_client(url) as (read, write, *_):
        async with ClientSession(read, write) as session:
            greeting = await session.initialize()
            listed = await session.list_tools()
            results = [await session.call_tool("act", {"action": "add"}) for _ in range(2)]
            try:
                await session.call_tool("act", {"jump": 1})
                error = None
            except Exception as failure:
                error = str(failure)
            return {
                "greeting": greeting.model_dump(mode="json", by_alias=True),
                "tools": [tool.model_dump(mode="json", by_alias=True) for tool in listed.tools],
                "results": [result.model_dump(mode="json", by_alias=True) for result in results],
                "error": error,
            }


async def negotiate(url):
    """The client that looks for a newer revision first."""
    try:
        from mcp.client.client import Client
    except ImportError:
        return None
    async with Client(url) as client:
        result = await client.call_tool("act", {"action": "add"})
        return result.content[0].text


url = sys.argv[1]
print(json.dumps({"play": asyncio.run(play(url)), "negotiated": asyncio.run(negotiate(url))}))
