"""Python client of the ragen environment server.

``Client`` and ``AsyncClient`` have every operation of the server. ``RagenEnv``, ``RagenVectorEnv`` and ``register``
are for Gymnasium and need its package: ``pip install ragen-env[gymnasium]``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .async_client import AsyncClient
from .client import Client, shared_client
from .errors import (
    BadReply,
    ClientClosed,
    ConnectionFailed,
    ProblemError,
    RagenError,
    ReplyTimeout,
    ServerUnavailable,
)
from .retry import RetryPolicy

if TYPE_CHECKING:
    from .env import RagenEnv
    from .registration import register
    from .vector_env import RagenVectorEnv

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "BadReply",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "ProblemError",
    "RagenEnv",
    "RagenError",
    "RagenVectorEnv",
    "ReplyTimeout",
    "RetryPolicy",
    "ServerUnavailable",
    "register",
    "shared_client",
]

_NEEDS_GYMNASIUM = {"RagenEnv": ".env", "RagenVectorEnv": ".vector_env", "register": ".registration"}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_GYMNASIUM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_NEEDS_GYMNASIUM[name], __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise ImportError(f"{name} needs Gymnasium: pip install 'ragen-env[gymnasium]'") from error
