"""The environments of a server in Gymnasium's registry."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium

from .client import Client, shared_client
from .settings import Transport, remember_token

_PAGE = 1000


def register(
    base_url: str | None = None,
    *,
    namespace: str = "ragen",
    token: str | None = None,
    transport: Transport = "websocket",
) -> list[str]:
    """Registers every environment of a server as ``ragen/<id>``, for ``gymnasium.make`` and ``gymnasium.make_vec``.

    A name without its version, ``ragen/Sokoban``, means the newest one. The ``/`` in the id of a custom environment is
    written as a dot: ``me/Coin-v0`` is ``ragen/me.Coin-v0``. A token is not part of the registered specification, which
    programs print and store: other processes take it from the variable RAGEN_TOKEN.

    Returns:
        The names, in the order of the server. Ids that Gymnasium cannot take are left out, with a warning.
    """
    client = shared_client(base_url, token=token, transport=transport)
    names: list[str] = []
    taken: dict[str, str] = {}
    for env_id in _ids(client):
        name = f"{namespace}/{env_id.replace('/', '.')}"
        if name in taken:
            warnings.warn(f"{env_id} has the same name as {taken[name]}, {name}, and is left out", stacklevel=2)
            continue
        kwargs: dict[str, Any] = {"env_id": env_id, "base_url": client.settings.base_url}
        if transport != "websocket":
            kwargs["transport"] = transport
        try:
            gymnasium.registry.pop(name, None)
            gymnasium.register(
                name,
                entry_point="ragen_env.env:RagenEnv",
                vector_entry_point="ragen_env.vector_env:RagenVectorEnv",
                kwargs=kwargs,
            )
        except gymnasium.error.Error as error:
            warnings.warn(f"{env_id} is left out: {error}", stacklevel=2)
            continue
        taken[name] = env_id
        names.append(name)
    if token is not None:
        remember_token(client.settings.base_url, token)
    return names


def _ids(client: Client) -> list[str]:
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = client.list_environments(limit=_PAGE, cursor=cursor)
        ids += [environment["env_id"] for environment in page["environments"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return ids
