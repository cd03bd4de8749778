"""Gymnasium's spaces from the server's description, and values of theirs from and to JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))) + "\n"


class AnyText(spaces.Text):
    """Texts of any characters; samples are printable ASCII."""

    def __init__(self, max_length: int, min_length: int = 0):
        super().__init__(max_length, min_length=min_length, charset=_PRINTABLE)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length


class Json(spaces.Space[Any]):
    """Any value of JSON that has the form of the environment's ``json_schema``; it is not checked here."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        raise NotImplementedError("the form of these values is known by its JSON Schema only: sample them yourself")

    def contains(self, x: Any) -> bool:
        return x is None or isinstance(x, (str, int, float, bool, list, dict))

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json)


def space_of(document: dict[str, Any]) -> spaces.Space[Any]:
    """The space that a ``gymnasium`` form describes. Raises ValueError where its type is unknown."""
    kind = document["type"]
    if kind == "Discrete":
        return spaces.Discrete(document["n"], start=document["start"])
    if kind == "Text":
        if document["charset"] is None:
            return AnyText(document["max_length"], document["min_length"])
        return spaces.Text(
            document["max_length"], min_length=document["min_length"], charset=document["charset"]
        )
    if kind == "Box":
        low, high = document["low"], document["high"]
        return spaces.Box(
            -np.inf if low is None else low,
            np.inf if high is None else high,
            shape=tuple(document["shape"]),
            dtype=np.dtype(document["dtype"]).type,
        )
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(document["nvec"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(document["n"])
    if kind == "OneOf":
        return spaces.OneOf([space_of(inner) for inner in document["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([space_of(inner) for inner in document["spaces"]])
    if kind == "Sequence":
        return spaces.Sequence(space_of(document["space"]), stack=document["stack"])
    if kind == "Dict":
        return spaces.Dict({name: space_of(inner) for name, inner in document["spaces"].items()})
    if kind == "Json":
        return Json()
    raise ValueError(f"no space of the type {kind!r}; is ragen-env older than the server?")


def member_of(space: spaces.Space[Any], value: Any) -> Any:
    """A value of JSON as the member of a space."""
    if isinstance(space, spaces.Discrete):
        return int(value)
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        member = np.array(value, dtype=space.dtype)
        if member.dtype.kind in "iu" and not np.array_equal(member, np.asarray(value)):
            raise ValueError(f"whole numbers of {space.dtype} were expected")
        return member
    if isinstance(space, spaces.OneOf):
        return (0, 0) if value is None else (1, member_of(space.spaces[1], value))
    if isinstance(space, spaces.Tuple):
        return tuple(member_of(inner, part) for inner, part in zip(space.spaces, value))
    if isinstance(space, spaces.Sequence):
        return tuple(member_of(space.feature_space, part) for part in value)
    if isinstance(space, spaces.Dict):
        return {name: member_of(inner, value[name]) for name, inner in space.spaces.items()}
    return value


def json_of(space: spaces.Space[Any], value: Any) -> Any:
    """A member of a space, such as an action, as a JSON value. A text is passed on, because an action may be a name."""
    if isinstance(value, str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(space, spaces.OneOf):
        index, inner = value
        return None if index == 0 else json_of(space.spaces[int(index)], inner)
    if isinstance(space, spaces.Dict):
        return {name: json_of(space.spaces[name], part) for name, part in value.items()}
    if isinstance(space, spaces.Tuple):
        return [json_of(inner, part) for inner, part in zip(space.spaces, value)]
    if isinstance(space, spaces.Sequence):
        return [json_of(space.feature_space, part) for part in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value


Batcher = Callable[[Sequence[Any]], Any]


def batcher_of(space: spaces.Space[Any]) -> Batcher:
    """Turns values of JSON into a member of the batched space, as ``gymnasium.vector.utils.concatenate`` would.

    The function raises ValueError where a value has another shape than the space.
    """
    if isinstance(space, (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        dtype, shape = space.dtype, space.shape or ()

        def arrays(values: Sequence[Any]) -> Any:
            batch = np.array(values, dtype=dtype)
            if batch.shape[1:] != shape:
                raise ValueError(f"observations have the shape {batch.shape[1:]}, those of the space {shape}")
            return batch

        return arrays
    if isinstance(space, spaces.Dict):
        inner = {name: batcher_of(one) for name, one in space.spaces.items()}
        return lambda values: {name: one([value[name] for value in values]) for name, one in inner.items()}
    if isinstance(space, spaces.Tuple):
        columns = [batcher_of(one) for one in space.spaces]
        return lambda values: tuple(one([value[i] for value in values]) for i, one in enumerate(columns))
    if isinstance(space, (spaces.Text, Json)):
        return tuple
    return lambda values: tuple(member_of(space, value) for value in values)
