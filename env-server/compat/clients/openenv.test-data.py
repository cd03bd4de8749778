"""Plays the counter with OpenEnv's own clients in their default modes, and prints what they saw."""

import asyncio
import json
import sys

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient


async def tools(url):
    async with MCPToolClient(base_url=url) as env:
        await env.reset(seed=5)
        listed = await env.list_tools()
        called = await env.call_tool("act", action="add")
        step = await env.step(CallToolAction(tool_name="act", arguments={"action": "add"}))
        state = await env.state()
        try:
            await env.call_tool("fly")
            error = None
        except RuntimeError as failure:
            error = str(failure)
        return {
            "tools": [tool.model_dump() for tool in listed],
            "has": [await env.has_tool("act"), await env.has_tool("fly")],
            "called": called,
            "reward": step.reward,
            "done": step.done,
            "step_count": state.step_count,
            "error": error,
        }


async def production(url):
    async with MCPToolClient(base_url=url) as env:
        env.use_production_mode = True
        listed = await env.list_tools()
        await env.call_tool("act", action="add")
        called = await env.call_tool("act", action="add")
        return {"tools": [tool.name for tool in listed], "called": called}


def generic(url):
    with GenericEnvClient(base_url=url).sync() as env:
        reset = env.reset(seed=5, episode_id="mine")
        step = env.step({"action": "add"})
        return {
            "reset": reset.observation,
            "step": [step.observation, step.reward, step.done],
            "state": env.state(),
        }


async def websocket(url):
    from websockets.asyncio.client import connect

    async with connect(url.replace("http://", "ws://") + "/mcp") as socket:
        await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
        return json.loads(await socket.recv())


url = sys.argv[1]
print(
    json.dumps(
        {
            "tools": asyncio.run(tools(url)),
            "production": asyncio.run(production(url)),
            "generic": generic(url),
            "websocket": asyncio.run(websocket(url)),
        }
    )
)
