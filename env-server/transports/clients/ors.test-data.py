"""Plays with the Python client of the Open Reward Standard (package ors-sdk) and prints what it saw as JSON."""

import json
import sys

from ors.client import ORS

host = sys.argv[1]
client = ORS(base_url=f"http://{host}")
environment = client.environments.get(name="test/Counter-v0")
tasks = environment.list_tasks("test")


def shown(output):
    return {"text": output.blocks[0].text, "reward": output.reward, "finished": output.finished}


with environment.session(task=tasks[0]) as session:
    prompt = [block.text for block in session.get_prompt()]
    tools = [tool.name for tool in session.list_tools()]
    first = shown(session.call_tool("step", {"action": "add"}))
    try:
        session.call_tool("fly", {})
        error = None
    except Exception as failure:
        error = str(failure)

# A session by split and index names no environment, so the address does.
named = ORS(base_url=f"http://test%2FCounter-v0:any@{host}")
with named.environments.get(name="test/Counter-v0").session(split="test", index=0) as session:
    indexed = session.get_prompt()[1].text

print(
    json.dumps(
        {
            "splits": environment.list_splits(),
            "tasks": [environment.num_tasks("test"), len(tasks), tasks[0].task_spec],
            "openai": environment.list_tools(format="openai")[0]["name"],
            "prompt": prompt,
            "tools": tools,
            "first": first,
            "error": error,
            "same": indexed == prompt[1],
        }
    )
)
client.close()
named.close()
