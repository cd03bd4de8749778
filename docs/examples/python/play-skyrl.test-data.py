"""Plays an episode of Sokoban through SkyRL-gym's registry and prints the outcome. Usage: ... URL"""

import json
import sys

import ragen_env
import skyrl_gym

url = sys.argv[1]
skyrl_gym.register("ragen", entry_point="skyrl_environment:RagenTextEnv")
config = {"env_id": "Sokoban-v0", "base_url": url, "config": {"preset": "simple"}}
env = skyrl_gym.make("ragen", env_config=config, extras={"seed": 7})
prompt, _ = env.init([])
with ragen_env.Client(url) as client:
    session = client.list()["sessions"][-1]["session_id"]
    wrong = env.step("nonsense")
    answer = "".join(map(str, client.reference(session, policy="optimal", count=100)["actions"]))
    right = env.step(answer)
    env.close()
    left = len(client.list()["sessions"])
first = {"done": wrong["done"], "turns": [message["role"] for message in wrong["observations"]]}
result = {"prompt": prompt[0]["content"], "first": first, "done": right["done"], "success": right["metadata"]["success"]}
print(json.dumps({**result, "open": left}))
