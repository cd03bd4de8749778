"""Everything that this package raises."""

from __future__ import annotations

from typing import Any

from .models import Problem


class RagenError(Exception):
    """The root of all errors of this package."""


class ProblemError(RagenError):
    """The server answered with a problem document (RFC 9457)."""

    def __init__(self, server: str, operation: str, problem: Problem, retry_after_s: float | None = None):
        self.server = server
        self.operation = operation
        self.problem = problem
        self.retry_after_s: float | None = retry_after_s if retry_after_s is not None else problem.get("retry_after_s")
        where = "".join(f" {fault['pointer']}: {fault['detail']}." for fault in problem.get("errors", []))
        super().__init__(
            f"{server} answered {operation} with {problem['status']} {problem['code']}: {problem['detail']}{where}"
        )

    @property
    def code(self) -> str:
        """One of the codes of the server's table of errors, e.g. ``episode_over``."""
        return self.problem["code"]

    @property
    def status(self) -> int:
        return self.problem["status"]

    @property
    def retryable(self) -> bool:
        return self.problem["retryable"]

    def __reduce__(self) -> tuple[Any, ...]:
        return (ProblemError, (self.server, self.operation, self.problem, self.retry_after_s))


class ConnectionFailed(RagenError, ConnectionError):
    """No connection, or it broke before the reply."""


class ReplyTimeout(RagenError, TimeoutError):
    """The connection stands, but the reply did not come in time."""


class BadReply(RagenError):
    """What came is not what the contract says."""

    def __init__(self, server: str, what: str):
        super().__init__(f"{server} sent something that is not a reply: {what}; is it an environment server?")


class ServerUnavailable(RagenError, ConnectionError):
    """The server stayed away longer than the client waits."""


class ClientClosed(RagenError):
    """The client was closed before or while it was used."""


SESSION_GONE = frozenset(["unknown_session", "session_expired", "session_closed", "session_lost"])
"""Codes after which a session does not come back."""
