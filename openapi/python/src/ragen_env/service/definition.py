"""The definition of an environment, derived from the environment itself."""

from __future__ import annotations

import inspect
import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .episodes import MAX_REPLY_BYTES
from .forms import Json
from .worlds import UnusableWorld, World, WorldSource, begun

_SEEDS = range(4)
_TRIAL_STEPS = 32
_TRIAL_S = 5.0
_MAX_INSTRUCTION = 2000
_MAX_DESCRIPTION = 20_000
_MAX_EXAMPLE_BYTES = 60_000
_MAX_OBSERVATION = 1_000_000
_LEAST_OBSERVATION = 10_000
#: What the service itself needs to answer when an environment does not.
_GRACE_MS = 2000
#: A service of this package takes many at once.
_CONNECTIONS = 128
_HEADING = re.compile(r"^(#+ .*|=+|-{3,})$")


@dataclass(frozen=True)
class Overrides:
    """What a definition says instead of what is derived."""

    title: str | None = None
    instruction: str | None = None
    max_steps: int | None = None
    seed: bool | None = None


@dataclass(frozen=True)
class Derived:
    name: str
    definition: dict[str, Json]
    notes: Sequence[str]
    """What a reader should know about it, a sentence each."""


def derive(source: WorldSource, timeout_s: float, overrides: Overrides) -> Derived:
    """The definition of an environment without the address of its service. Plays a few episodes for it.

    Raises UnusableWorld, WorldFault.
    """
    trial = _Trial(source)
    try:
        trial.play_all(overrides.seed)
    finally:
        trial.world.close()
    world = trial.world
    title = overrides.title or world.name
    documentation = _documentation(source, world)
    given = getattr(world.base, "instruction", None)
    instruction = overrides.instruction or (given if isinstance(given, str) else _instruction(documentation))
    notes = list(trial.notes)
    if not instruction:
        instruction = f"Take the actions that earn the most reward in {title}."
        notes.append("No docstring: the instruction is only a sentence. Write one for the class, or use --instruction.")
    if world.actions.space["type"] == "Text" and not world.actions.listed and not trial.lists_valid:
        notes.append(
            "Actions are any text, and nothing names one: give the class `example_actions` (or --example-actions), from "
            "which random play draws, or demonstrations to `init`."
        )
    rewards = getattr(world.base, "reward_range", None)
    bounds = [float(bound) for bound in rewards] if isinstance(rewards, (tuple, list)) and len(rewards) == 2 else []
    definition: dict[str, Json] = {
        "kind": "remote",
        "protocol": "webhook",
        "title": title[:200],
        "instruction": instruction,
        **({"description": documentation[:_MAX_DESCRIPTION]} if documentation else {}),
        "max_episode_steps": overrides.max_steps or min(world.max_steps, 100_000),
        "action_space": world.actions.space,
        "example_action": world.actions.examples[0],
        **({"actions": _fitting(world.actions.examples)} if _is_list(world) else {}),
        "observation_max_length": min(_MAX_OBSERVATION, max(_LEAST_OBSERVATION, 2 * trial.longest)),
        **({"reward_range": bounds} if bounds and all(abs(bound) <= 1e12 for bound in bounds) else {}),
        "timeout_ms": max(100, min(300_000, int(timeout_s * 1000) + _GRACE_MS)),
        "connections": _CONNECTIONS,
        "capabilities": {"seed": trial.seeded, "valid_actions": trial.lists_valid},
    }
    return Derived(world.name, definition, notes)


def _documentation(source: WorldSource, world: World) -> str:
    """The docstring of the environment's class, else of the function that makes it."""
    for owner in (type(world.base), source.target):
        text = getattr(owner, "__doc__", None) if not isinstance(owner, str) else None
        is_generated = inspect.isclass(owner) and str(text).startswith(f"{owner.__name__}(")
        if text and not is_generated:
            return inspect.cleandoc(text)
    return ""


def _instruction(documentation: str) -> str:
    """The first section of a docstring, without its heading."""
    lines: list[str] = []
    for line in documentation.splitlines():
        if not _HEADING.match(line.strip()):
            lines.append(line)
        elif any(one.strip() for one in lines):
            break
    return "\n".join(lines).strip()[:_MAX_INSTRUCTION]


def _is_list(world: World) -> bool:
    """True if the examples are worth choosing from, and the action space does not name them itself."""
    return world.actions.space["type"] != "Discrete" and world.actions.listed


def _fitting(examples: Sequence[Json]) -> list[Json]:
    """As many examples as a definition may hold."""
    taken: list[Json] = []
    size = 2
    for example in examples:
        size += len(json.dumps(example)) + 1
        if size > _MAX_EXAMPLE_BYTES:
            break
        taken.append(example)
    return taken


class _Trial:
    """A few episodes of random actions, each seed twice: what an environment shows, and whether it keeps to its seed."""

    def __init__(self, source: WorldSource):
        self._source = source
        self.world = source.make()
        self.longest = 0
        self.lists_valid = False
        self.seeded = False
        self.notes: list[str] = []
        self._deadline = time.monotonic() + _TRIAL_S

    def play_all(self, seed: bool | None) -> None:
        world = self.world
        self.seeded = world.takes_seed if seed is None else seed
        if seed and not world.takes_seed:
            raise UnusableWorld(f"{world.name}.reset takes no seed")
        for number in _SEEDS:
            first, second = self._play(number), self._play(number)
            if seed is None and self.seeded and not _agree(first, second):
                self.seeded = False
                self.notes.append(
                    "The same seed gave two different episodes, so seeds are off: draw only from the seed of reset."
                )
            if time.monotonic() > self._deadline:
                break
        if seed is None and not world.takes_seed:
            self.notes.append("reset takes no seed, so episodes cannot be repeated or compared.")

    def _play(self, seed: int) -> list[str]:
        draw = random.Random(seed)
        self.world, reply = begun(self._source, self.world, seed)
        seen = [self._read(reply)]
        for _ in range(_TRIAL_STEPS):
            if time.monotonic() > self._deadline:
                break
            choices = reply.get("valid_actions") or self.world.actions.examples
            reply = self.world.step(draw.choice(list(choices)))
            seen.append(self._read(reply))
            if reply["terminated"] or reply["truncated"]:
                break
        return seen

    def _read(self, reply: dict[str, Json]) -> str:
        self.lists_valid = self.lists_valid or "valid_actions" in reply
        observation: Any = reply["observation"]
        text = observation if isinstance(observation, str) else observation.get("text") or json.dumps(observation)
        self.longest = max(self.longest, len(text))
        size = len(json.dumps(reply))
        if size > MAX_REPLY_BYTES:
            raise UnusableWorld(
                f"an observation of {self.world.name} takes {size:,} bytes as text and JSON, {MAX_REPLY_BYTES:,} are the "
                "limit: wrap the environment in one that describes it in words, or make it with render_mode=ansi"
            )
        return json.dumps([observation, reply.get("reward"), reply.get("terminated")])


def _agree(first: list[str], second: list[str]) -> bool:
    """Two plays of a seed are alike as far as time allowed both."""
    return all(one == other for one, other in zip(first, second))
