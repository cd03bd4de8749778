"""JSON as the server takes it: no NaN, numpy's values as plain ones. Reading is done by orjson where it is installed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

try:
    from orjson import loads as _orjson_loads

    FAST = True
except ImportError:
    FAST = False


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Raises ValueError where the data is not JSON."""
    if FAST:
        return _orjson_loads(data)
    return json.loads(bytes(data) if isinstance(data, memoryview) else data)


def dumps(value: Any) -> bytes:
    """Raises ValueError for NaN and infinities, TypeError for what JSON does not have."""
    return _encode(value).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r:.100}")


_encode = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
).encode
