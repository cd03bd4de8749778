"""Plays an environment with LangChain: the model is bound to the environment's tools, which MCP carries out."""

import asyncio

import httpx2
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from rollouts import play_episodes

MAX_CALLS = 8


async def play(episode):
    model = ChatOpenAI(model="policy", base_url=episode["OPENAI_BASE_URL"], api_key=episode["OPENAI_API_KEY"])
    http = httpx2.AsyncClient(headers={"authorization": "Bearer " + episode["RAGEN_SESSION_TOKEN"]})
    async with http, streamable_http_client(episode["RAGEN_MCP_URL"], http_client=http) as (read, write, *_):
        async with ClientSession(read, write) as session:
            await session.initialize()
            bound = model.bind_tools(
                [
                    {"type": "function", "function": {"name": tool.name, "parameters": tool.input_schema}}
                    for tool in (await session.list_tools()).tools
                    if tool.name == "step"
                ]
            )
            seen = await session.call_tool("reset", {})
            messages = [HumanMessage(seen.content[0].text)]
            for _ in range(MAX_CALLS):
                reply = await bound.ainvoke(messages)
                if not reply.tool_calls:
                    return
                messages.append(reply)
                for call in reply.tool_calls:
                    result = await session.call_tool(call["name"], call["args"])
                    messages.append(ToolMessage(result.content[0].text, tool_call_id=call["id"]))
                    data = result.structured_content or {}
                    if data.get("terminated") or data.get("truncated"):
                        return


play_episodes(lambda episode: asyncio.run(play(episode)))
