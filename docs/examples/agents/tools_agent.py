"""Plays an environment through its tools: the model calls them, and the Model Context Protocol carries them out."""

import asyncio
import json

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from openai import AsyncOpenAI

from rollouts import play_episodes

MAX_CALLS = 8


async def play(episode):
    client = AsyncOpenAI(base_url=episode["OPENAI_BASE_URL"], api_key=episode["OPENAI_API_KEY"])
    http = httpx2.AsyncClient(headers={"authorization": "Bearer " + episode["RAGEN_SESSION_TOKEN"]})
    async with http, streamable_http_client(episode["RAGEN_MCP_URL"], http_client=http) as (read, write, *_):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tools = [
                {"type": "function", "function": {"name": tool.name, "parameters": tool.input_schema}}
                for tool in (await session.list_tools()).tools
                if tool.name == "step"
            ]
            seen = await session.call_tool("reset", {})
            messages = [{"role": "user", "content": seen.content[0].text}]
            for _ in range(MAX_CALLS):
                reply = await client.chat.completions.create(model="policy", messages=messages, tools=tools)
                message = reply.choices[0].message
                if not message.tool_calls:
                    return
                messages.append(message.model_dump(exclude_none=True))
                for call in message.tool_calls:
                    result = await session.call_tool(call.function.name, json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result.content[0].text})
                    data = result.structured_content or {}
                    if data.get("terminated") or data.get("truncated"):
                        return


play_episodes(lambda episode: asyncio.run(play(episode)))
