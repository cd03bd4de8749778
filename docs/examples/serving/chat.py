"""Chats with a served policy through the package openai: python chat.py http://127.0.0.1:8000"""

import sys

from openai import OpenAI

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none")
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "Which way?"}]

reply = client.chat.completions.create(model=model, messages=messages, max_tokens=16, seed=1)
text = ""
for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=16, seed=1, stream=True):
    text += chunk.choices[0].delta.content or ""
assert text == reply.choices[0].message.content
print(text)
