"""A program that forks while it has an environment open, and prints which sessions are open when its child has ended.

Arguments: ``one`` or ``many`` environments, what the child does, and the address of the server.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import ragen_env

ENV = "FrozenLake-v0"


def opened(kind: str, url: str) -> Any:
    env: Any = ragen_env.RagenEnv(ENV, url) if kind == "one" else ragen_env.RagenVectorEnv(ENV, url, num_envs=2)
    env.reset(seed=1)
    return env


def sessions_of(env: Any) -> list[str]:
    return [str(env.session_id)] if isinstance(env, ragen_env.RagenEnv) else list(env.session_ids)


def is_open(client: ragen_env.Client, session_id: str) -> bool:
    try:
        client.get(session_id)
        return True
    except ragen_env.ProblemError as problem:
        assert problem.code == "session_closed"
        return False


def main() -> None:
    kind, work, url = sys.argv[1:]
    env = opened(kind, url)
    of_parent = sessions_of(env)
    reader, writer = os.pipe()
    if os.fork() == 0:
        if work == "makes its own":
            env = opened(kind, url)
        elif work == "closes":
            env.close()
        elif work == "closes and resets":
            env.close()
            env.reset(seed=2)
        os.write(writer, json.dumps(sessions_of(env) if work not in ("ends", "closes") else []).encode())
        # It ends as programs do, with all that is registered for their end.
        return
    assert os.wait()[1] == 0
    os.close(writer)
    with os.fdopen(reader) as pipe:
        of_child = json.load(pipe)
    client = ragen_env.Client(url)
    still_open = {who: [is_open(client, one) for one in ids] for who, ids in [("parent", of_parent), ("child", of_child)]}
    env.step(0 if kind == "one" else [0, 0])
    env.close()
    print(json.dumps({"open": still_open, "open at the end": [is_open(client, one) for one in of_parent]}))


main()
