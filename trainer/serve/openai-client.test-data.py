"""Asks a server through the package openai: python openai-client.test-data.py <url> '[{"route", "body", "extra"}, ...]'.

Prints the replies as one line of JSON; those of a stream as the list of its chunks.
"""

import json
import sys

from openai import OpenAI

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
routes = {"chat": client.chat.completions, "text": client.completions}


def ask(route, body, extra=None):
    reply = routes[route].create(model="base", extra_body=extra, **body)
    if body.get("stream"):
        return [chunk.model_dump() for chunk in reply]
    return reply.model_dump()


print(json.dumps([ask(**request) for request in json.loads(sys.argv[2])]))
