"""The written forms of observations and actions: what a language model reads and writes, and the values behind it."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Json = Any
#: Samples of an action space that is too large to list.
EXAMPLES = 64
_MAX_TEXT_ACTION = 2000
_MAX_SHOWN = 200
#: Numbers of an action that may each have other bounds; of more the widest bounds are written.
_MAX_BOUNDS = 256
#: Bounds beyond it are none: of larger integers float64 cannot hold each.
_MAX_BOUND = 1e15
_HIGHLIGHT = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m([^\x1b]*)\x1b\[0?m")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class NoForm(ValueError):
    """A value or space that has no written form."""


class InvalidAction(ValueError):
    """An action that the space does not have."""


def text_of(value: Any) -> str:
    """The text form of an observation.

    A text stays as it is. Numbers with a point have four significant digits. A list of numbers is one line. A matrix has
    a line for each row, and so has an array of three dimensions, with commas inside a cell, such as those of a pixel; one
    of more dimensions has an empty line between its parts. A dictionary has a line for each entry, ``name: value``; a
    value of several lines follows, indented.

    Raises NoForm for other values.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, np.ndarray):
        return _array_text(value)
    if _is_scalar(value):
        return _scalar_text(value)
    if isinstance(value, Mapping):
        return "\n".join(_entry(str(name), text_of(part)) for name, part in value.items())
    if isinstance(value, (list, tuple)):
        if all(_is_scalar(part) for part in value):
            return " ".join(map(_scalar_text, value))
        return "\n".join(_entry(str(i), text_of(part)) for i, part in enumerate(value))
    raise NoForm(f"a value of type {type(value).__name__} has no text form")


def _entry(name: str, text: str) -> str:
    if "\n" not in text:
        return f"{name}: {text}"
    return "\n".join([f"{name}:", *(f"  {line}".rstrip() for line in text.split("\n"))])


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, np.generic))


def _scalar_text(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return format(value, ".4g") if isinstance(value, float) else str(value)


def _array_text(array: Any) -> str:
    if array.ndim == 0:
        return _scalar_text(array.item())
    if array.ndim == 1:
        return " ".join(map(_scalar_text, array.tolist()))
    if array.ndim == 3:
        return "\n".join(" ".join(",".join(map(_scalar_text, cell)) for cell in row) for row in array.tolist())
    return ("\n" if array.ndim == 2 else "\n\n").join(map(_array_text, array))


def drawing_of(text: str) -> str:
    """A drawing for terminals as plain text, with highlights in square brackets."""
    return _ESCAPE.sub("", _HIGHLIGHT.sub(r"[\1]", text)).strip("\n")


def json_of(value: Any) -> Json:
    """A value of Python or NumPy as JSON. NaN and infinity, which JSON lacks, are null. Raises NoForm."""
    if value is None or isinstance(value, (str, bool, int)) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (np.ndarray, np.generic)):
        return json_of(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): json_of(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_of(part) for part in value]
    raise NoForm(f"a value of type {type(value).__name__} has no form in JSON")


@dataclass(frozen=True)
class ActionForm:
    """How actions are written, and what the environment gets for them."""

    space: dict[str, Json]
    """``action_space`` of the definition."""
    examples: Sequence[Json]
    """Written actions: all of a discrete space, samples of another."""
    members: Sequence[Any] | None = None
    """For a discrete space, what the environment gets for each name."""
    gymnasium: Any = None
    """The Gymnasium space of an action that is written as JSON."""
    listed: bool = True
    """False where the examples are samples that say no more than the space: random letters, or some of many numbers."""

    def member(self, written: Json) -> Any:
        """What the environment gets for an action. Raises InvalidAction."""
        if self.members is not None:
            if isinstance(written, int) and not isinstance(written, bool):
                written = str(written) if str(written) in self.examples else self._name_of(written)
            if isinstance(written, str):
                folded = written.strip().lower()
                for name, member in zip(self.examples, self.members):
                    if name.lower() == folded:
                        return member
            raise InvalidAction(f"{written!r} is not one of the actions {', '.join(self.examples)}")
        if self.gymnasium is None:
            if not isinstance(written, str):
                raise InvalidAction(f"an action is a text, got {type(written).__name__}")
            return written
        from ..spaces import member_of

        try:
            member = member_of(self.gymnasium, written)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise InvalidAction(f"{_short(written)} is not a member of {self.gymnasium}: {error}") from None
        if not self.gymnasium.contains(member):
            raise InvalidAction(f"{_short(written)} is not a member of {self.gymnasium}")
        return member

    def _name_of(self, member: int) -> Json:
        """The name of a number that the environment itself uses."""
        return next((name for name, one in zip(self.examples, self.members or ()) if one == member), None)

    def valid(self, given: Any) -> list[Json]:
        """Legal actions as an environment lists them (members, names or a mask of a discrete space), written."""
        listed = given.tolist() if isinstance(given, np.ndarray) else list(given)
        if self.members is None:
            return [json_of(one) for one in listed]
        is_mask = isinstance(given, np.ndarray) and given.dtype.name in ("bool", "int8", "uint8")
        if is_mask:
            return [name for name, flag in zip(self.examples, listed) if flag]
        names = [one if isinstance(one, str) else self._name_of(int(one)) for one in listed]
        return [name for name in names if name in self.examples]


def named_actions(names: Sequence[str], members: Sequence[Any] | None = None) -> ActionForm:
    """Actions that are chosen from a list. Raises NoForm for names that are not distinct texts."""
    if not names or any(not isinstance(name, str) or not name.strip() for name in names):
        raise NoForm(f"the actions must be a list of texts, got {names!r}")
    if len({name.strip().lower() for name in names}) < len(names):
        raise NoForm(f"an action occurs twice (case does not count): {', '.join(names)}")
    return ActionForm({"type": "Discrete", "names": list(names)}, list(names), list(members or names))


def text_actions(examples: Sequence[str], max_length: int = _MAX_TEXT_ACTION) -> ActionForm:
    """Actions that are any text."""
    shown = " or ".join(example for example in examples[:2] if len(example) <= _MAX_SHOWN)
    written = {"format": f"a text, e.g. {shown}"} if shown else {}
    return ActionForm({"type": "Text", "max_length": max_length, **written}, list(examples))


#: The last space, the names given for it, and its form: environments of one class have the same one, and its samples take 20 ms.
_last_form: tuple[Any, Sequence[str] | None, ActionForm] | None = None


def space_actions(space: Any, names: Sequence[str] | None = None) -> ActionForm:
    """Actions of a Gymnasium space: names for ``Discrete``, text for ``Text``, else JSON. Raises NoForm."""
    global _last_form
    known = _last_form
    if known is None or known[1] != names or not (known[0] is space or known[0] == space):
        known = _last_form = (space, names, _form_of(space, names))
    return known[2]


def _form_of(space: Any, names: Sequence[str] | None) -> ActionForm:
    from gymnasium import spaces

    from ..spaces import member_of

    if isinstance(space, spaces.Discrete):
        members = [int(space.start) + i for i in range(int(space.n))]
        return named_actions(names or [str(member) for member in members], members)
    space.seed(0)
    examples: list[Json] = []
    for _ in range(4 * EXAMPLES):
        drawn = json_of(space.sample())
        rounded = _rounded(drawn)
        written = rounded if space.contains(member_of(space, rounded)) else drawn
        if written not in examples and len(examples) < EXAMPLES and written != "":
            examples.append(written)
    if isinstance(space, spaces.Text):
        return ActionForm({"type": "Text", "max_length": int(space.max_length)}, examples, listed=False)
    schema = json_schema(space)
    written = "JSON, e.g. " + " or ".join(map(_short, examples[:2]))
    listed = _has_text(space) or _member_count(space) == len(examples)
    return ActionForm({"type": "Json", "schema": schema, "format": written}, examples, None, space, listed)


def _parts(space: Any) -> Sequence[Any]:
    """The spaces of a dictionary or tuple."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return list(space.spaces.values())
    return space.spaces if isinstance(space, spaces.Tuple) else ()


def _has_text(space: Any) -> bool:
    from gymnasium import spaces

    return isinstance(space, spaces.Text) or any(map(_has_text, _parts(space)))


def _member_count(space: Any) -> float:
    """The number of members of a space without texts, infinite for numbers with a point."""
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return math.prod(map(_member_count, _parts(space)))
    if isinstance(space, spaces.Discrete):
        return float(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return float(np.prod(space.nvec, dtype=float))
    if isinstance(space, spaces.MultiBinary):
        return float(2.0 ** min(1000, math.prod(space.shape)))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.integer):
        return float(np.prod(space.high.astype(float) - space.low + 1))
    return math.inf


def _rounded(value: Json) -> Json:
    """An example with four significant digits, as observations have: more are noise to a policy that imitates it."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _short(value: Json) -> str:
    return json.dumps(value)[:_MAX_SHOWN]


def json_schema(space: Any) -> dict[str, Json]:
    """The JSON Schema of a Gymnasium space, in the keywords of definitions. Raises NoForm."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return {"type": "integer", "minimum": int(space.start), "maximum": int(space.start + space.n - 1)}
    if isinstance(space, spaces.MultiDiscrete):
        return _numbers("integer", space.start, space.start + space.nvec - 1)
    if isinstance(space, spaces.MultiBinary):
        return _numbers("integer", np.zeros(space.shape, int), np.ones(space.shape, int))
    if isinstance(space, spaces.Box):
        return _numbers("integer" if np.issubdtype(space.dtype, np.integer) else "number", space.low, space.high)
    if isinstance(space, spaces.Text):
        return {"type": "string", "minLength": int(space.min_length), "maxLength": int(space.max_length)}
    if isinstance(space, spaces.Dict):
        properties = {name: json_schema(inner) for name, inner in space.spaces.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(space, spaces.Tuple):
        return _list([json_schema(inner) for inner in space.spaces])
    raise NoForm(f"actions of {space} have no written form: use Discrete, Text, MultiDiscrete, Box, Dict or Tuple")


def _numbers(kind: str, low: Any, high: Any) -> dict[str, Json]:
    """Numbers in the shape of their bounds: a number, or nested lists."""
    if low.size > _MAX_BOUNDS:
        low, high = np.full(low.shape, low.min()), np.full(high.shape, high.max())
    return _bounded(kind, low, high)


def _bounded(kind: str, low: Any, high: Any) -> dict[str, Json]:
    if np.ndim(low) > 0:
        return _list([_bounded(kind, least, most) for least, most in zip(low, high)])
    # The shortest decimal that the space's type rounds to the bound: 0.1 for 0.10000000149.
    given = {name: float(str(np.asarray(bound)[()])) for name, bound in (("minimum", low), ("maximum", high))}
    bounds = {name: bound for name, bound in given.items() if abs(bound) <= _MAX_BOUND}
    return {"type": kind, **{name: int(bound) if bound.is_integer() else bound for name, bound in bounds.items()}}


def _list(parts: list[dict[str, Json]]) -> dict[str, Json]:
    """A list of a fixed length."""
    length = {"type": "array", "minItems": len(parts), "maxItems": len(parts)}
    if parts and any(part != parts[0] for part in parts):
        return {**length, "prefixItems": parts}
    return {**length, **({"items": parts[0]} if parts else {})}
