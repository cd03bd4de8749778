"""Python client of the ragen environment server.

``Client`` and ``AsyncClient`` have every operation of the server. ``RagenEnv``, ``RagenVectorEnv`` and ``register``
are for Gymnasium and need its package: ``pip install ragen-env[gymnasium]``. ``serve`` makes an environment in Python a
service that the server plays: ``pip install ragen-env[serve]``.
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
    from .service import serve
    from .vector_env import RagenVectorEnv

__version__ = "0.2.0"
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
    "serve",
    "shared_client",
]

#: What needs packages that the client does not: its module, the extra with them, and the packages.
_EXTRAS = {
    "RagenEnv": (".env", "gymnasium", ("gymnasium",)),
    "RagenVectorEnv": (".vector_env", "gymnasium", ("gymnasium",)),
    "register": (".registration", "gymnasium", ("gymnasium",)),
    "serve": (".service", "serve", ("starlette", "uvicorn")),
}


def __getattr__(name: str) -> Any:
    if name not in _EXTRAS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra, packages = _EXTRAS[name]
    try:
        return getattr(import_module(module, __name__), name)
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        raise ImportError(f"{name} needs {packages[0].capitalize()}: pip install 'ragen-env[{extra}]'") from error
