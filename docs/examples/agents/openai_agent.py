"""Plays an environment with the `openai` package: one question a step."""

import json

from openai import OpenAI

from rollouts import play_episodes, step


def play(episode):
    client = OpenAI(base_url=episode["OPENAI_BASE_URL"], api_key=episode["OPENAI_API_KEY"])
    messages = [{"role": "user", "content": json.loads(episode["RAGEN_TASK"])["observation"]}]
    while True:
        reply = client.chat.completions.create(model="policy", messages=messages)
        action = reply.choices[0].message.content.strip()
        result = step(episode, action or "none")
        if result["terminated"] or result["truncated"]:
            return
        messages += [{"role": "assistant", "content": action}, {"role": "user", "content": result["observation"]}]


play_episodes(play)
