"""Where a server is and how it is spoken to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from .retry import URL_VARIABLE, RetryPolicy

DEFAULT_URL = "http://127.0.0.1:8080"
TOKEN_VARIABLE = "RAGEN_TOKEN"
MAX_REPLY_BYTES = 256 * 1024 * 1024

Transport = Literal["websocket", "http"]


@dataclass(frozen=True)
class Settings:
    """Settings of a client; times are in seconds."""

    base_url: str
    token: str | None = field(default=None, repr=False)
    transport: Transport = "websocket"
    timeout_s: float = 60.0
    """How long a reply is waited for, in one attempt."""
    connect_timeout_s: float = 5.0
    retry: RetryPolicy = RetryPolicy()

    @property
    def websocket_url(self) -> str:
        scheme, rest = self.base_url.split("://", 1)
        return f"{'wss' if scheme == 'https' else 'ws'}://{rest}/v1/ws"

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}


_tokens: dict[str, str] = {}


def remember_token(base_url: str, token: str) -> None:
    """Makes a token the one of a server for this process."""
    _tokens[base_url] = token


def settings_of(
    base_url: str | None,
    token: str | None,
    transport: Transport,
    timeout_s: float,
    connect_timeout_s: float,
    retry: RetryPolicy | None,
) -> Settings:
    """Settings with the variables RAGEN_URL and RAGEN_TOKEN where no address or token is given.

    Raises ValueError where the address is not http or https, or a value is out of its range.
    """
    url = (base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
    split = urlsplit(url)
    if split.scheme not in ("http", "https") or not split.hostname:
        raise ValueError(f"base_url must look like {DEFAULT_URL}, got {url!r}")
    if split.username is not None or split.password is not None:
        raise ValueError("give the token as `token`, not inside base_url")
    if transport not in ("websocket", "http"):
        raise ValueError(f"transport must be 'websocket' or 'http', got {transport!r}")
    for name, value in (("timeout_s", timeout_s), ("connect_timeout_s", connect_timeout_s)):
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}")
    if token is None:
        token = _tokens.get(url) or os.environ.get(TOKEN_VARIABLE) or None
    return Settings(url, token, transport, timeout_s, connect_timeout_s, retry or RetryPolicy())
