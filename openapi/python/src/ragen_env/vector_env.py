"""Many sessions of an environment as a vectorized environment of Gymnasium: one batch request for each step."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from . import codec
from .batches import Item, item
from .client import Client
from .session_settings import RENDER_FPS, SERVER_MODES, Described, SessionSettings, frame_of
from .settings import Transport
from .spaces import batcher_of, json_of, member_of
from .vector_sessions import VectorSessions, checked

_Step = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class RagenVectorEnv(VectorEnv[Any, Any, Any]):
    """``num_envs`` sessions of an environment that step together, in one request.

    With the autoreset modes ``NEXT_STEP`` and ``DISABLED`` it gives the values that ``SyncVectorEnv`` of as many
    :class:`RagenEnv` gives. With ``SAME_STEP`` and observations in the form ``text`` the server itself begins the next
    episode (its wrapper ``auto_reset``), from its own generator; in other forms finished sessions are reset by a second
    request, in steps that end an episode.

    The arguments are those of :class:`RagenEnv`.
    """

    metadata: dict[str, Any] = {"render_modes": list(SERVER_MODES), "render_fps": RENDER_FPS}

    def __init__(
        self,
        env_id: str,
        base_url: str | None = None,
        *,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        config: dict[str, Any] | None = None,
        wrappers: list[dict[str, Any]] | None = None,
        observation_format: str = "text",
        render_mode: str | None = None,
        token: str | None = None,
        transport: Transport = "websocket",
        client: Client | None = None,
        ttl_s: float | None = None,
    ):
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._server_resets = same_step and observation_format == "text"
        if self._server_resets:
            wrappers = [*(wrappers or []), {"name": "auto_reset"}]
        settings = SessionSettings(env_id, config, wrappers, observation_format, ttl_s)
        described = Described(settings, base_url, token, transport, client, render_mode)
        self._begin(described, num_envs, render_mode)

    def _begin(self, described: Described, num_envs: int, render_mode: str | None) -> None:
        self._described = described
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.metadata = {
            "render_modes": described.render_modes,
            "render_fps": RENDER_FPS,
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_observation_space = described.observation_space()
        self.single_action_space = described.action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._batch = batcher_of(self.single_observation_space)
        self._discrete = isinstance(self.single_action_space, gymnasium.spaces.Discrete)
        self._generators: list[np.random.Generator] = []
        self._sessions = VectorSessions(described.client, described.settings.fields())
        self._observations: list[Any] = []
        self._done = np.zeros(num_envs, dtype=np.bool_)
        self._remembered: dict[str, tuple[dict[str, Any], bool]] = {}
        self._finalizer = weakref.finalize(self, self._sessions.abandon)

    @property
    def session_ids(self) -> list[str]:
        """The sessions in the order of the environments, for :class:`ragen_env.Client`; none before the first reset."""
        return list(self._sessions.ids)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins episodes.

        Args:
            seed: of the first environment, the others follow; or one for each
            options: of the environment, and ``reset_mask``: which of them are reset
        """
        given = dict(options or {})
        mask = given.pop("reset_mask", None)
        chosen = self._chosen(mask)
        seeds = self._seeds(seed, chosen)
        sessions = self._begin_episodes(chosen, seeds, given or None)
        if len(chosen) == self.num_envs:
            self._observations = [session["observation"] for session in sessions]
        else:
            for index, session in zip(chosen, sessions):
                self._observations[index] = session["observation"]
        self._done[chosen] = False
        infos: list[dict[str, Any] | None] = [None] * self.num_envs
        for index, session in zip(chosen, sessions):
            infos[index] = session["info"]
        return self._batch(self._observations), infos_of(infos)

    def _chosen(self, mask: Any) -> list[int]:
        if mask is None:
            return list(range(self.num_envs))
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ValueError(f"options['reset_mask'] must be an array of {self.num_envs} bool, got {mask!r:.100}")
        if not mask.any():
            raise ValueError("options['reset_mask'] must choose at least one environment")
        if not self._sessions.ids:
            raise gymnasium.error.ResetNeeded("call reset() without a mask first")
        return [int(index) for index in np.flatnonzero(mask)]

    def _seeds(self, seed: int | Sequence[int | None] | None, chosen: list[int]) -> list[int | None]:
        """The seeds of the next episodes of the chosen environments."""
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + index for index in range(self.num_envs)]
            if seed is not None:
                self._np_random, self._np_random_seed = seeding.np_random(int(seed))
        else:
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise ValueError(f"there must be a seed for each of {self.num_envs} environments, got {len(seeds)}")
        if not self._generators:
            self._generators = [seeding.np_random()[0] for _ in range(self.num_envs)]
        for index in chosen:
            one = seeds[index]
            if one is not None:
                self._generators[index] = seeding.np_random(one)[0]
        return [self._described.episode_seed(seeds[index], self._generators[index]) for index in chosen]

    def _begin_episodes(
        self, chosen: list[int], seeds: list[int | None], options: dict[str, Any] | None
    ) -> list[Any]:
        """Opens or resets sessions; snapshots go with a session that is gone."""
        if not self._sessions.ids:
            self._remembered.clear()
            return self._sessions.open(seeds, options)
        before = list(self._sessions.ids)
        try:
            return self._sessions.reset(chosen, seeds, options)
        finally:
            if self._sessions.ids != before:
                self._remembered.clear()

    def step(self, actions: Any) -> _Step:
        """Steps every environment; one that is at its end begins its next episode, as the autoreset mode says."""
        if not self._sessions.ids:
            raise gymnasium.error.ResetNeeded("call reset() first")
        resetting = self._done if self.autoreset_mode is AutoresetMode.NEXT_STEP else None
        replies = checked(self._sessions.client.exchange(self._items(self._texts(actions), resetting)))
        observations = [reply["observation"] for reply in replies]
        infos: list[dict[str, Any] | None] = [reply["info"] for reply in replies]
        if resetting is not None and resetting.any():
            rewards = np.array([reply.get("reward", 0.0) for reply in replies], dtype=np.float64)
            terminations = np.array([reply.get("terminated", False) for reply in replies], dtype=np.bool_)
            truncations = np.array([reply.get("truncated", False) for reply in replies], dtype=np.bool_)
        else:
            rewards = np.array([reply["reward"] for reply in replies], dtype=np.float64)
            terminations = np.array([reply["terminated"] for reply in replies], dtype=np.bool_)
            truncations = np.array([reply["truncated"] for reply in replies], dtype=np.bool_)
        done = terminations | truncations
        final: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and done.any():
            final = self._finish(done, observations, infos)
        self._done = done
        self._observations = observations
        return self._batch(observations), rewards, terminations, truncations, {**infos_of(infos), **final}

    def _texts(self, actions: Any) -> list[bytes]:
        """The actions in JSON."""
        if self._discrete and isinstance(actions, np.ndarray) and actions.dtype.kind in "iu":
            if actions.shape != (self.num_envs,):
                raise ValueError(f"actions must have the shape ({self.num_envs},), got {actions.shape}")
            return [b"%d" % action for action in actions.tolist()]
        several = actions if self._discrete else iterate(self.action_space, actions)
        texts = [codec.dumps(json_of(self.single_action_space, action)) for action in several]
        if len(texts) != self.num_envs:
            raise ValueError(f"there must be an action for each of {self.num_envs} environments, got {len(texts)}")
        return texts

    def _items(self, actions: list[bytes], resetting: NDArray[np.bool_] | None) -> list[Item]:
        items = self._sessions.step_items(actions)
        if resetting is not None:
            for index in np.flatnonzero(resetting):
                seed = self._described.episode_seed(None, self._generators[index])
                items[index] = self._sessions.reset_item(int(index), seed)
        return items

    def _finish(
        self, done: NDArray[np.bool_], observations: list[Any], infos: list[dict[str, Any] | None]
    ) -> dict[str, Any]:
        """Puts the first observations of the next episodes where the last ones of the old ones stand.

        The answer has the last ones, as ``final_obs`` and ``final_info``.
        """
        ended = [int(index) for index in np.flatnonzero(done)]
        last = np.full(self.num_envs, None, dtype=object)
        last_infos: list[dict[str, Any] | None] = [None] * self.num_envs
        sessions: list[Any] = []
        if not self._server_resets:
            seeds = [self._described.episode_seed(None, self._generators[index]) for index in ended]
            sessions = self._begin_episodes(ended, seeds, None)
        for at, index in enumerate(ended):
            info = infos[index] or {}
            if self._server_resets:
                final, last_infos[index], infos[index] = info["final_observation"], info["final_info"], {}
            else:
                final, last_infos[index] = observations[index], info
                observations[index], infos[index] = sessions[at]["observation"], sessions[at]["info"]
            last[index] = member_of(self.single_observation_space, final)
        return {
            "final_obs": last,
            "_final_obs": done.copy(),
            "final_info": infos_of(last_infos),
            "_final_info": done.copy(),
        }

    def render(self) -> tuple[Any, ...] | None:
        """The text or picture of each environment, in one request; None where there is no render mode."""
        mode = self.render_mode
        if mode is None:
            gymnasium.logger.warn("render() was called on a vector environment without a render_mode")
            return None
        replies = self._sessions.ask_each("render", {"mode": SERVER_MODES[mode]})
        return tuple(frame_of(mode, reply) for reply in replies)

    def snapshot(self) -> list[str]:
        """Remembers the state of each environment, chance included; the answer is for :meth:`restore`."""
        replies = self._sessions.ask_each("snapshot", {})
        for reply, generator, done in zip(replies, self._generators, self._done):
            state = copy.deepcopy(dict(generator.bit_generator.state))
            self._remembered[reply["snapshot_id"]] = (state, bool(done))
        return [reply["snapshot_id"] for reply in replies]

    def restore(self, snapshot_ids: Sequence[str]) -> tuple[Any, dict[str, Any]]:
        """Goes back to snapshots of these environments, one for each."""
        if len(snapshot_ids) != self.num_envs:
            raise ValueError(f"there must be a snapshot for each of {self.num_envs} environments")
        unknown = [one for one in snapshot_ids if one not in self._remembered]
        if unknown:
            raise ValueError(f"snapshot() of these environments did not give {unknown[0]!r}")
        items = [
            item("restore", {"session_id": session_id, "snapshot_id": snapshot_id})
            for session_id, snapshot_id in zip(self._sessions.ids, snapshot_ids)
        ]
        sessions = checked(self._sessions.client.exchange(items))
        self._observations = [session["observation"] for session in sessions]
        for index, snapshot_id in enumerate(snapshot_ids):
            state, self._done[index] = self._remembered[snapshot_id]
            self._generators[index].bit_generator.state = state
        return self._batch(self._observations), infos_of([session["info"] for session in sessions])

    def clone(self) -> RagenVectorEnv:
        """As many environments in the same states, with the same futures, random draws included."""
        replies = self._sessions.ask_each("clone", {})
        clone = RagenVectorEnv.__new__(RagenVectorEnv)
        clone.autoreset_mode, clone._server_resets = self.autoreset_mode, self._server_resets
        clone._begin(self._described, self.num_envs, self.render_mode)
        clone.spec = self.spec
        clone._generators = copy.deepcopy(self._generators)
        clone._sessions.take([reply["sessions"][0]["session_id"] for reply in replies])
        clone._observations = list(self._observations)
        clone._done = self._done.copy()
        return clone

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the sessions that this process opened, and lets go of others, which it had before a fork."""
        # Gymnasium before 1.4 closes an environment with a constructor that raised, too.
        if hasattr(self, "_sessions"):
            self._sessions.close()


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
