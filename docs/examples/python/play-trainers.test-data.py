"""Plays an episode through the environment for verl, in the order in which it calls it.

Usage: play-trainers.test-data.py URL; prints what came of it.
"""

import asyncio
import json
import sys

import ragen_env
import verl_interaction

url = sys.argv[1]
SETTINGS = {"preset": "simple"}


def solution(session_id: str) -> str:
    with ragen_env.Client(url) as client:
        plan = client.reference(session_id, policy="optimal", count=100)["actions"]
    return "".join(map(str, plan))


async def verl() -> dict[str, object]:
    config = {"name": "ragen", "env_id": "Sokoban-v0", "base_url": url, "config": SETTINGS, "max_turns": 3}
    interaction = verl_interaction.RagenInteraction(config)
    seen = []
    for answers in (["nonsense"] * 3, None):
        instance = await interaction.start_interaction(None, seed=7)
        session = interaction._episodes[instance]["session"]
        messages = [{"role": "user", "content": "…"}]
        over, rewards = False, []
        while not over:
            answer = answers[len(rewards)] if answers else solution(session)
            messages.append({"role": "assistant", "content": answer})
            over, text, reward, info = await interaction.generate_response(instance, messages)
            messages.append({"role": "user", "content": text})
            rewards.append(reward)
        seen.append({"turns": len(rewards), "score": await interaction.calculate_score(instance), "success": info["success"]})
        await interaction.finalize_interaction(instance)
    return {"episodes": seen, "left": interaction._episodes}


async def main() -> dict[str, object]:
    with ragen_env.Client(url) as client:
        result = {"verl": await verl()}
        result["open"] = len(client.list()["sessions"])
    return result


print(json.dumps(asyncio.run(main())))
