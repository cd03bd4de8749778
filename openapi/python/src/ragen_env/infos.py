"""The infos of many environments in Gymnasium's form: for each key an array of values, and a mask of who has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Infos = Sequence["dict[str, Any] | None"]


def infos_of(infos: Infos) -> dict[str, Any]:
    """What ``VectorEnv._add_info`` makes of the infos one by one, a column at a time; None where there is none.

    Numbers of which some are whole and some are not are all kept as they are: in Gymnasium the first one decides.
    """
    count = len(infos)
    batch: dict[str, Any] = {}
    keys: dict[str, None] = {}
    for info in infos:
        if info:
            keys.update(dict.fromkeys(info))
    for key in keys:
        values = [None if info is None else info.get(key) for info in infos]
        if any(value is None for value in values):
            has = np.fromiter((info is not None and key in info for info in infos), np.bool_, count)
        else:
            has = np.ones(count, np.bool_)
        batch[key] = _column(values, has)
        batch[f"_{key}"] = has
    return batch


_ZEROS = {bool: False, int: 0, float: 0.0}


def _column(values: list[Any], has: Any) -> Any:
    present = [value for value, there in zip(values, has) if there] if not has.all() else values
    types = {type(value) for value in present}
    if types == {dict}:
        return infos_of([value if there else None for value, there in zip(values, has)])
    if types == {bool} or types == {int} or types == {float} or types == {int, float}:
        kind = float if float in types else next(iter(types))
        if present is not values:
            values = [value if there else _ZEROS[kind] for value, there in zip(values, has)]
        try:
            return np.array(values, dtype=kind)
        except OverflowError:
            pass
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
