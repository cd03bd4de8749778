"""Episodes that the trainer gives a program: one in its variables, or one after the other where the program stays."""

import json
import os
import urllib.request


def post(url, token, body):
    headers = {"authorization": "Bearer " + token, "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        return json.loads(reply.read() or "null")


def step(episode, action):
    return post(episode["RAGEN_SESSION_URL"] + "/step", episode["RAGEN_SESSION_TOKEN"], {"action": action})


def play_episodes(play):
    gateway = os.environ.get("RAGEN_GATEWAY_URL")
    if gateway is None:
        play(os.environ)
        return
    token = os.environ["RAGEN_WORKER_TOKEN"]
    while True:
        episode = post(gateway + "/rollouts/next", token, {})
        if episode is None:
            continue
        try:
            play(episode)
            verdict = {}
        except Exception as error:
            verdict = {"error": repr(error)}
        post(f"{gateway}/rollouts/{episode['id']}/finish", token, verdict)
