"""A server's environment as an environment of Gymnasium."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import gymnasium

from .client import Client, OpenSessions
from .errors import SESSION_GONE, ProblemError
from .models import Environment, Session
from .session_settings import RENDER_FPS, SERVER_MODES, Described, SessionSettings, frame_of
from .settings import Transport
from .spaces import json_of, member_of


class RagenEnv(gymnasium.Env[Any, Any]):
    """An environment of a server; its episode is a session there.

    Equal seeds give equal episodes. A reset without a seed draws the next one from ``np_random``, so that all episodes
    follow from the first seed. Actions are members of ``action_space``, or names of actions.

    Args:
        env_id: e.g. ``Sokoban-v0``
        base_url: where the server is; the variable RAGEN_URL or http://127.0.0.1:8080 where it is not given
        config: configuration of the environment
        wrappers: wrappers of the server, e.g. ``[{"name": "time_limit", "options": {"max_steps": 20}}]``
        observation_format: ``text``, ``structured`` or another form of the environment
        render_mode: ``ansi`` (text) or ``rgb_array`` ([height, width, 3])
        token: the variable RAGEN_TOKEN where it is not given
        ttl_s: idle seconds after which the server ends the session

    Raises ProblemError where the server refuses something, ServerUnavailable, ReplyTimeout.
    """

    metadata: dict[str, Any] = {"render_modes": list(SERVER_MODES), "render_fps": RENDER_FPS}

    def __init__(
        self,
        env_id: str,
        base_url: str | None = None,
        *,
        config: dict[str, Any] | None = None,
        wrappers: list[dict[str, Any]] | None = None,
        observation_format: str = "text",
        render_mode: str | None = None,
        token: str | None = None,
        transport: Transport = "websocket",
        client: Client | None = None,
        ttl_s: float | None = None,
    ):
        settings = SessionSettings(env_id, config, wrappers, observation_format, ttl_s)
        self._begin(Described(settings, base_url, token, transport, client, render_mode), render_mode)

    def _begin(self, described: Described, render_mode: str | None) -> None:
        self._described = described
        self._client = described.client
        self.render_mode = render_mode
        self.metadata = {"render_modes": described.render_modes, "render_fps": RENDER_FPS}
        self.observation_space = described.observation_space()
        self.action_space = described.action_space()
        self._sessions = OpenSessions(described.client)
        self._remembered: dict[str, dict[str, Any]] = {}
        self._finalizer = weakref.finalize(self, self._sessions.abandon)

    @property
    def description(self) -> Environment:
        """All about the environment: instruction, legend, names of actions, configuration, …"""
        return self._described.document

    @property
    def session_id(self) -> str | None:
        """The session of the episode, for :class:`ragen_env.Client`; None before the first reset."""
        return self._sessions.ids[0] if self._sessions.ids else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        episode_seed = self._described.episode_seed(seed, self.np_random)
        options = options or None
        if self.session_id:
            try:
                session = self._client.reset(self.session_id, seed=episode_seed, options=options)
                return self._first(session)
            except ProblemError as problem:
                if problem.code not in SESSION_GONE:
                    raise
                self._sessions.take([])
        self._remembered.clear()
        fields = self._described.settings.fields()
        session = self._client.create(**fields, seed=episode_seed, options=options)
        self._sessions.take([session["session_id"]])
        return self._first(session)

    def _first(self, session: Session) -> tuple[Any, dict[str, Any]]:
        return member_of(self.observation_space, session["observation"]), dict(session["info"])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reply = self._client.step(self._session(), json_of(self.action_space, action))
        return (
            member_of(self.observation_space, reply["observation"]),
            float(reply["reward"]),
            reply["terminated"],
            reply["truncated"],
            dict(reply["info"]),
        )

    def render(self) -> Any:
        """The text or picture of the render mode; None where there is none."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() was called on an environment without a render_mode; give one to make()")
            return None
        mode: Any = SERVER_MODES[self.render_mode]
        return frame_of(self.render_mode, self._client.render(self._session(), mode=mode))

    def snapshot(self) -> str:
        """Remembers the state, chance included; the answer is for :meth:`restore`."""
        snapshot_id = self._client.snapshot(self._session())["snapshot_id"]
        self._remembered[snapshot_id] = copy.deepcopy(dict(self.np_random.bit_generator.state))
        return snapshot_id

    def restore(self, snapshot_id: str, dynamics_seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Goes back to a snapshot of this episode's session: what follows is as it was then, later episodes included.

        With `dynamics_seed` chance differs from there to the end of the episode.
        """
        session = self._client.restore(self._session(), snapshot_id, dynamics_seed=dynamics_seed)
        state = self._remembered.get(snapshot_id)
        if state is not None:
            self.np_random.bit_generator.state = state
        return self._first(session)

    def clone(self, count: int = 1, dynamics_seed: int | None = None) -> list[RagenEnv]:
        """Further environments in the same state, with the same future; with `dynamics_seed` each has its own chance."""
        sessions = self._client.clone(self._session(), count=count, dynamics_seed=dynamics_seed)["sessions"]
        clones = []
        for session in sessions:
            clone = RagenEnv.__new__(RagenEnv)
            clone._begin(self._described, self.render_mode)
            clone.spec = self.spec
            clone._np_random = copy.deepcopy(self._np_random)
            clone._np_random_seed = self._np_random_seed
            clone._sessions.take([session["session_id"]])
            clones.append(clone)
        return clones

    def valid_actions(self) -> list[str] | None:
        """The actions that are legal now, by name; None where the environment cannot list them."""
        return self._client.valid_actions(self._session())["valid_actions"]

    def close(self) -> None:
        """Closes the session. It can be reset again, which opens another one.

        After a fork only the process that opened the session closes it at the server; another one lets go of it.
        """
        self._sessions.close()

    def _session(self) -> str:
        if not self.session_id:
            raise gymnasium.error.ResetNeeded("call reset() first")
        return self.session_id
