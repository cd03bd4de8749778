"""Environments of well-known packages, found by a prefix: ``reasoning_gym:syllogism``, ``textworld:tw-simple``."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """A package with environments."""

    package: str
    """Name that pip installs."""
    modules: tuple[str, ...]
    """Modules that it must have."""
    adapter: str
    """What makes its environments, ``module:name`` in this package."""


FAMILIES = {
    "gymnasium": Family("gymnasium", ("gymnasium",), "gymnasium_worlds:made"),
    "minigrid": Family("minigrid", ("gymnasium", "minigrid"), "gymnasium_worlds:minigrid"),
    "ale": Family("ale-py", ("gymnasium", "ale_py"), "gymnasium_worlds:ale"),
    "nle": Family("nle", ("gymnasium", "nle"), "gymnasium_worlds:nle"),
    "craftax": Family("craftax", ("craftax",), "gymnasium_worlds:Craftax"),
    "textarena": Family("textarena", ("textarena",), "text_worlds:TextArenaGame"),
    "reasoning_gym": Family("reasoning-gym", ("reasoning_gym",), "text_worlds:ReasoningProblem"),
    "scienceworld": Family("scienceworld", ("scienceworld",), "text_worlds:ScienceTask"),
    "textworld": Family("textworld", ("textworld",), "text_worlds:TextWorldGame"),
    "jericho": Family("jericho", ("jericho",), "text_worlds:InteractiveFiction"),
    "openenv": Family("openenv", ("openenv",), "protocol_worlds:OpenEnvWorld"),
    "ors": Family("ors-sdk", ("ors",), "protocol_worlds:RewardStandardWorld"),
}


class MissingPart(Exception):
    """Something that a package needs and that is not here; the message says how to get it."""


def family_of(target: str) -> str | None:
    """The prefix of a target, where it is one of the table."""
    prefix = target.partition(":")[0]
    return prefix if prefix in FAMILIES else None


def maker(target: str) -> Callable[..., Any]:
    """What makes the environments of a target such as ``textworld:tw-simple``. Raises MissingPart."""
    prefix, _, name = target.partition(":")
    family = FAMILIES[prefix]
    if not name:
        raise MissingPart(f"{target} names no environment: write {prefix}:NAME")
    for module in family.modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise MissingPart(f"{family.package} needs {error.name}, which is not installed: pip install {error.name}") from None
            raise MissingPart(f"{target} needs a package: pip install {family.package}") from None
    module, _, made = family.adapter.partition(":")
    make: Callable[..., Any] = getattr(importlib.import_module(f"{__package__}.{module}"), made)
    return lambda **kwargs: make(name, **kwargs)


def number_of(seed: int | None, below: int = 2**31) -> int:
    """A seed that packages with NumPy's generators take; any one where the server promises no seeds."""
    return random.randrange(below) if seed is None else seed % below


def one_of(what: str, name: str, known: Any) -> None:
    """Raises MissingPart for a name that a package does not have, with the nearest ones."""
    import difflib

    names = sorted(map(str, known))
    if name not in names:
        near = difflib.get_close_matches(name, names, 6, 0.4) or names[:12]
        raise MissingPart(f"{what} has no {name!r}; it has {len(names)}, such as {', '.join(near)}")
