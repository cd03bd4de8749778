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
    """Modules that it must have; the last one has ``make(name, **kwargs)`` unless the family is Gymnasium's."""
    adapter: str = ""
    """Module of this package that makes its environments."""


FAMILIES = {
    "gymnasium": Family("gymnasium", ("gymnasium",), "gymnasium_worlds"),
    "minigrid": Family("minigrid", ("gymnasium", "minigrid"), "gymnasium_worlds"),
    "ale": Family("ale-py", ("gymnasium", "ale_py"), "gymnasium_worlds"),
    "nle": Family("nle", ("gymnasium", "nle"), "gymnasium_worlds"),
    "craftax": Family("craftax", ("craftax",), "gymnasium_worlds"),
    "textarena": Family("textarena", ("textarena",), "text_worlds"),
    "reasoning_gym": Family("reasoning-gym", ("reasoning_gym",), "text_worlds"),
    "scienceworld": Family("scienceworld", ("scienceworld",), "text_worlds"),
    "textworld": Family("textworld", ("textworld",), "text_worlds"),
    "jericho": Family("jericho", ("jericho",), "text_worlds"),
    "openenv": Family("openenv", ("openenv",), "protocol_worlds"),
    "ors": Family("ors-sdk", ("ors",), "protocol_worlds"),
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
    adapter = importlib.import_module(f"{__package__}.{family.adapter}")
    make: Callable[..., Any] = getattr(adapter, prefix)
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
