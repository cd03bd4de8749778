"""When a request is repeated, and after which pause."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from .errors import ConnectionFailed, ProblemError, ReplyTimeout, ServerUnavailable

URL_VARIABLE = "RAGEN_URL"
_AWAY = frozenset([429, 502, 503])


@dataclass(frozen=True)
class RetryPolicy:
    """When and how often a request is repeated. Requests carry keys, so a repetition never acts twice."""

    base_s: float = 0.1
    """Longest first pause; it doubles with each attempt, and the pause taken is a random share of it."""
    max_pause_s: float = 5.0
    patience_s: float = 60.0
    """How long a server that is down, draining or full is waited for."""
    first_patience_s: float = 3.0
    """How long a server is waited for that cannot be connected to and has never answered this client."""
    attempts: int = 4
    """Attempts at a request that was sent but got no usable reply."""


NO_RETRY = RetryPolicy(patience_s=0, attempts=1)


class Retries:
    """The failures of one request so far."""

    def __init__(self, server: str, policy: RetryPolicy, first_contact_at: float | None = None):
        """``first_contact_at`` is when the request began (``time.monotonic``), if the server has answered none yet."""
        self._server = server
        self._policy = policy
        self._first_contact_at = first_contact_at
        self._away = 0
        self._lost = 0
        self._since: float | None = None

    def pause(self, error: Exception) -> float:
        """Seconds to wait before the next attempt.

        Raises the error where repeating would not help or was done often enough, and ServerUnavailable where the
        server stayed away longer than the policy's patience.
        """
        policy = self._policy
        if is_away(error):
            now = time.monotonic()
            if self._since is None:
                self._since = now
            waited, patience_s = now - self._since, policy.patience_s
            hint = ""
            if self._first_contact_at is not None and isinstance(error, ConnectionFailed):
                waited, patience_s = now - self._first_contact_at, min(patience_s, policy.first_patience_s)
                hint = f". Start it with `npm run env-server`, or give its address as base_url or in {URL_VARIABLE}"
            if waited >= patience_s:
                if policy.patience_s <= 0:
                    raise error
                said = f"{self._server} was not available for {waited:.1f} s: {error}{hint}"
                raise ServerUnavailable(said) from error
            self._away += 1
            pause = self._jittered(self._away, error)
            return min(pause, max(0.001, patience_s - waited))
        if is_lost(error):
            self._lost += 1
            if self._lost >= policy.attempts:
                raise error
            return self._jittered(self._lost, error)
        raise error

    def _jittered(self, attempt: int, error: Exception) -> float:
        policy = self._policy
        ceiling = min(policy.max_pause_s, policy.base_s * 2.0 ** min(attempt - 1, 30))
        asked = error.retry_after_s if isinstance(error, ProblemError) else None
        return max(asked or 0.0, random.random() * ceiling)


def is_away(error: Exception) -> bool:
    """The server is down, draining or full, and is waited for."""
    return isinstance(error, ConnectionFailed) or (isinstance(error, ProblemError) and error.status in _AWAY)


def is_lost(error: Exception) -> bool:
    """The request may have been carried out, and is repeated under its key."""
    return isinstance(error, ReplyTimeout) or (isinstance(error, ProblemError) and error.retryable)


def is_final(error: Exception) -> bool:
    return not is_away(error) and not is_lost(error)
