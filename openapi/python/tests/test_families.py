"""Families of environments by prefix: each plays 20 episodes over REST, as an environment server plays them."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from test_serve import Service, start  # noqa: F401 - a fixture

import ragen_env
from ragen_env.service.families import FAMILIES
from ragen_env.service.worlds import UnusableWorld, WorldFault, WorldSource

EPISODES = 20
#: Family: what is served, its options, and the most steps of an episode here.
PLAYED: dict[str, tuple[str, list[str], int]] = {
    "gymnasium": ("FrozenLake-v1", [], 20),
    "minigrid": ("MiniGrid-Empty-5x5-v0", [], 20),
    "ale": ("Pong", [], 5),
    "nle": ("NetHackScore-v0", [], 5),
    "craftax": ("Craftax-Symbolic-v1", ["--timeout", "250"], 3),
    "textarena": ("GuessTheNumber-v0", ["--example-actions", "[5],[12]"], 20),
    "reasoning_gym": ("syllogism", ["--actions", "Yes,No"], 1),
    "scienceworld": ("find-animal", ["--timeout", "60"], 5),
    "textworld": ("tw-simple", ["--timeout", "60", "--kwargs", '{"games": 5}'], 5),
    "jericho": ("", [], 5),
    "openenv": ("protocol_examples:GuessEnvironment", ["--example-actions", '{"number": 1}'], 3),
    "ors": ("protocol_examples:Sums", ["--example-actions", '{"tool": "answer"; "input": {}}'], 2),
}


def installed(prefix: str) -> bool:
    return all(find_spec(module) is not None for module in FAMILIES[prefix].modules)


def test_every_family_is_played() -> None:
    assert set(PLAYED) == set(FAMILIES)


@pytest.mark.parametrize("prefix", PLAYED)
def test_family(prefix: str, server: Server, start: Callable[..., Service], tmp_path: Path) -> None:  # noqa: F811
    if not installed(prefix):
        pytest.skip(f"pip install {FAMILIES[prefix].package}")
    name, options, most = PLAYED[prefix]
    if prefix == "jericho":
        name = story(tmp_path)
    if prefix in ("openenv", "ors"):
        options = []
    served = start(f"{prefix}:{name}", "--register", server.url, "--id", "me/World-v0", *options)
    assert served.url, "\n".join(served.said)
    draw = random.Random(1)
    with ragen_env.Client(server.url, transport="http", timeout_s=300) as client:
        spec: Any = client.get_environment("me/World-v0")
        for seed in range(EPISODES):
            reply: Any = client.create("me/World-v0", seed=seed if spec["capabilities"]["seed"] else None)
            session_id = reply["session_id"]
            assert str(reply["observation"]).strip(), f"episode {seed} begins with a text"
            for _ in range(most):
                choices = reply.get("valid_actions") or spec.get("actions") or [spec["example_action"]]
                reply = client.step(session_id, draw.choice(choices))
                assert str(reply["observation"]).strip()
                if reply["terminated"] or reply["truncated"]:
                    break


def story(folder: Path) -> str:
    """A game for Jericho: its package has none, TextWorld's compiler makes one."""
    if find_spec("textworld") is None:
        pytest.skip("pip install textworld, which makes a game for Jericho")
    path = folder / "story.z8"
    subprocess.run([str(Path(sys.executable).parent / "tw-make"), "custom", "--seed", "1", "--output", str(path)], check=True, timeout=120)
    return str(path)


def test_scienceworld_gets_another_java_machine() -> None:
    if not installed("scienceworld"):
        pytest.skip("pip install scienceworld")
    from ragen_env.service import text_worlds

    source = WorldSource("scienceworld:boil")
    lost, other = source.make(), source.make()
    assert len(text_worlds._GATEWAY) == 1, "both are in one machine"
    assert "boil water" in str(lost.reset(None)["observation"]) or lost.reset(None)["valid_actions"]
    machine = text_worlds._GATEWAY[0]._gateway.java_process
    machine.kill()
    machine.wait()
    for world in (lost, other):
        with pytest.raises(WorldFault):
            world.step("look around")
    assert source.make().reset(None)["valid_actions"]


@pytest.mark.parametrize(
    "target,says",
    [
        ("reasoning_gym:silogism", "has no 'silogism'; it has .* such as syllogism"),
        ("reasoning_gym:", "names no environment: write reasoning_gym:NAME"),
        ("textarena:TicTacToe-v0", "a game for more players"),
        ("scienceworld:boyl", "has no 'boyl'; .*boil"),
        ("textworld:none.z8", "there is no game .*none.z8: tw-make"),
        ("jericho:none.z5", "games are not in the package"),
        ("minigrid:MiniGrid-None-v0", "doesn't exist|does not exist|not found"),
        ("openenv:nowhere:Thing", "there is no module nowhere"),
        ("ors:random:Nothing", "has no class Nothing"),
    ],
)
def test_what_is_missing_is_said(target: str, says: str) -> None:
    prefix = target.split(":")[0]
    if installed(prefix):
        with pytest.raises(UnusableWorld, match=says):
            WorldSource(target).make().reset(0)
    else:
        with pytest.raises(UnusableWorld, match=f"pip install {FAMILIES[prefix].package}|names no environment"):
            WorldSource(target).make()
