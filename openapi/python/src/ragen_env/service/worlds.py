"""Environments of others, found by name and played one way: Gymnasium's, and plain classes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import re
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .families import MissingPart, family_of, maker
from .forms import (
    ActionForm,
    InvalidAction,
    Json,
    NoForm,
    drawing_of,
    json_of,
    named_actions,
    space_actions,
    text_actions,
    text_of,
)

Make = Callable[..., Any]
_GYMNASIUM_ID = re.compile(r"^(?:[\w.]+:)?[\w./-]+-v\d+$")
_FLAGS = ("success", "action_is_valid", "action_is_effective")
#: Keys of ``info`` and methods under which environments list their legal actions.
_VALID_KEYS = ("valid_actions", "action_mask")
_MAX_STEPS = 100
#: Environments that may fail to begin an episode before the next one is not tried.
_BEGINNINGS = 3


class UnusableWorld(Exception):
    """An environment that cannot be served; the message says why and what to do."""


class WorldFault(Exception):
    """An environment failed; the message names the place."""


@dataclass(frozen=True)
class WorldSource:
    """Where environments come from. It can be sent to another process where ``target`` can be pickled."""

    target: str | Make
    """``module:name``, ``file.py:name``, an id of Gymnasium, a name of a family, or what makes an environment."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    actions: Sequence[str] | None = None
    """The actions of an environment that does not name them."""
    example_actions: Sequence[str] | None = None
    """Examples of an environment that takes any text."""

    @property
    def name(self) -> str:
        """The last part of the target, for messages."""
        if not isinstance(self.target, str):
            return str(getattr(self.target, "__name__", type(self.target).__name__))
        return re.split(r"[:/]", self.target)[-1]

    def make(self) -> World:
        """A new environment. Raises UnusableWorld where there is none, WorldFault where its constructor fails."""
        make = self.target if callable(self.target) else _found(self.target)
        with faults_of(f"{self.name}(…)"):
            env = make(**self.kwargs)
        return World(env, self)


def begun(source: WorldSource, world: World, seed: int | None) -> tuple[World, dict[str, Json]]:
    """An environment that has begun an episode, and its reply. One that fails to reset is closed, and a new one tried.

    Raises WorldFault where that fails too; none of them is open then.
    """
    for attempt in range(1, _BEGINNINGS + 1):
        try:
            return world, world.reset(seed)
        except BaseException as error:
            close(world)
            if attempt == _BEGINNINGS or not isinstance(error, WorldFault):
                raise
            print(f"attempt {attempt} of {_BEGINNINGS} to begin an episode failed: {error}", file=sys.stderr)
            world = source.make()
    raise AssertionError("the last attempt returns or raises")


def close(world: World) -> None:
    """Closes an environment, though it may fail."""
    with contextlib.suppress(WorldFault):
        world.close()


def _found(target: str) -> Make:
    if family_of(target) is not None:
        try:
            return maker(target)
        except MissingPart as error:
            raise UnusableWorld(str(error)) from None
    if _GYMNASIUM_ID.match(target):
        try:
            import gymnasium
        except ModuleNotFoundError:
            raise UnusableWorld(f"{target} is an id of Gymnasium: pip install 'ragen-env[serve,gymnasium]'") from None
        return lambda **kwargs: gymnasium.make(target, **kwargs)
    module_name, _, name = target.partition(":")
    if not name:
        raise UnusableWorld(f"{target!r} must be module:Class, file.py:Class or an id of Gymnasium such as FrozenLake-v1")
    if module_name.endswith(".py"):
        path = Path(module_name).resolve()
        sys.path.insert(0, str(path.parent))
        module_name = path.stem
    elif "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0]:
            raise UnusableWorld(f"{module_name} needs the package {error.name}, which is not installed") from error
        raise UnusableWorld(f"there is no module {module_name} in {Path.cwd()} or among the installed packages") from None
    found = getattr(module, name, None)
    if found is None:
        others = [key for key, one in vars(module).items() if inspect.isclass(one) and hasattr(one, "step")]
        raise UnusableWorld(f"{module_name} has no {name}; it has {', '.join(others) or 'no class with a method step'}")
    if not callable(found):
        raise UnusableWorld(f"{target} must be a class or a function that makes an environment: each session gets its own")
    return found  # type: ignore[no-any-return]


class faults_of:
    """Turns what other people's code raises, SystemExit too, into a WorldFault that names the line."""

    def __init__(self, what: str):
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if error is None or isinstance(error, (UnusableWorld, WorldFault, GeneratorExit)):
            return
        if isinstance(error, MissingPart):
            raise UnusableWorld(str(error)) from None
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            return
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if len(frames) > 1 else ""
        raise WorldFault(f"{self._what} raised {type(error).__name__}: {error}"[:1000] + place) from error


class World:
    """One environment. Any call may raise WorldFault, after which the environment must not be used again."""

    def __init__(self, env: Any, source: WorldSource):
        self.env = env
        self.base = getattr(env, "unwrapped", env)
        is_id = isinstance(source.target, str) and _GYMNASIUM_ID.match(source.target)
        named = getattr(self.base, "world_name", None)
        self.name = named if isinstance(named, str) else source.name if is_id else type(self.base).__name__
        """A short name, e.g. ``MyEnv`` or ``FrozenLake-v1``."""
        for method in ("reset", "step"):
            if not callable(getattr(env, method, None)):
                raise UnusableWorld(f"{self.name} has no method {method}: it needs reset(seed) and step(action)")
        self.is_gymnasium = "gymnasium" in sys.modules and isinstance(env, sys.modules["gymnasium"].Env)
        self.takes_seed = self.is_gymnasium or _takes_seed(env.reset)
        self.actions = self._actions(source)
        self._seen: dict[str, Json] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def _actions(self, source: WorldSource) -> ActionForm:
        space = getattr(self.env, "action_space", None)
        names = source.actions or _names_of(self.base)
        examples = source.example_actions or getattr(self.base, "example_actions", None)
        try:
            if space is not None and hasattr(space, "sample"):
                count = getattr(space, "n", None)
                if source.actions and len(source.actions) != count:
                    raise NoForm(f"{len(source.actions)} actions were named, but the action space is {space}")
                form = space_actions(space, names if names and len(names) == count else None)
                is_text = form.space["type"] == "Text"
                return text_actions(list(examples), form.space["max_length"]) if examples and is_text else form
            if names:
                return named_actions(names)
        except NoForm as error:
            raise UnusableWorld(f"{self.name}: {error}") from None
        if examples:
            return text_actions(list(examples))
        raise UnusableWorld(
            f'{self.name} does not say which actions it takes: give the class `actions = ["Higher", "Lower"]` for a '
            'choice, or `example_actions = ["guess 5"]` for any text (--actions and --example-actions do the same)'
        )

    @property
    def max_steps(self) -> int:
        spec = getattr(self.env, "spec", None)
        limits = (getattr(one, name, None) for one in (spec, self.base) for name in ("max_episode_steps", "max_steps"))
        return next((int(limit) for limit in limits if isinstance(limit, int) and limit > 0), _MAX_STEPS)

    def reset(self, seed: int | None) -> dict[str, Json]:
        """Begins an episode and gives the reply to it."""
        with faults_of(f"{self.name}.reset"):
            if self.is_gymnasium or (self.takes_seed and seed is not None):
                result = self._awaited(self.env.reset(seed=seed))
            else:
                result = self._awaited(self.env.reset())
        observation: Any = result
        info: Mapping[str, Any] = {}
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
            observation, info = result
        with faults_of(f"{self.name}.reset"):
            self._seen = self._shown(observation, info)
            return {**self._seen, "info": _info_of(info)}

    def step(self, action: Json) -> dict[str, Json]:
        """Takes an action and gives the reply to it; one that is not in the space changes nothing and earns 0."""
        try:
            member = self.actions.member(action)
        except InvalidAction as error:
            refused = {"action_is_valid": False, "action_is_effective": False, "action_error": str(error)[:300]}
            return {**self._seen, "reward": 0, "terminated": False, "truncated": False, "info": refused}
        with faults_of(f"{self.name}.step"):
            result = self._awaited(self.env.step(member))
        with faults_of(f"{self.name}.step"):
            observation, reward, terminated, truncated, info = _outcome_of(result)
            self._seen = self._shown(observation, info)
            reward = float(reward)
            if not -1e12 <= reward <= 1e12:
                raise WorldFault(f"{self.name}.step gave the reward {reward}: it must be a finite number within 1e12")
            ended, cut = bool(terminated), bool(truncated)
            details = _info_of(info)
            if "success" not in details:
                named = next((details[key] for key in ("is_success", "won") if isinstance(details.get(key), bool)), None)
                details["success"] = ended and reward > 0 if named is None else named
            return {**self._seen, "reward": reward, "terminated": ended, "truncated": cut, "info": details}

    def _shown(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Json]:
        shown: dict[str, Json] = {"observation": self._observation(observation)}
        listing = getattr(self.base, "valid_actions", None)
        given = self._awaited(listing()) if callable(listing) else next((info[key] for key in _VALID_KEYS if key in info), None)
        if given is not None:
            shown["valid_actions"] = self.actions.valid(given)
        return shown

    def _observation(self, value: Any) -> Json:
        if getattr(self.env, "render_mode", None) == "ansi":
            drawing = self._awaited(self.env.render())
            return {"text": drawing_of("\n".join(drawing) if isinstance(drawing, list) else str(drawing))}
        if isinstance(value, str):
            return value
        if isinstance(value, Mapping) and isinstance(value.get("text"), str) and not set(value) - {"text", "structured"}:
            return json_of(value)
        structured = json_of(value)
        return {"text": text_of(value), "structured": structured if isinstance(structured, dict) else {"value": structured}}

    def close(self) -> None:
        close = getattr(self.env, "close", None)
        try:
            if callable(close):
                with faults_of(f"{self.name}.close"):
                    self._awaited(close())
        finally:
            if self._loop is not None:
                self._loop.close()

    def _awaited(self, result: Any) -> Any:
        """The result of a call; coroutines of ``async`` methods run to their end in the environment's own loop."""
        if not inspect.isawaitable(result):
            return result
        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(_result_of(result))


async def _result_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _names_of(base: Any) -> list[str] | None:
    """The names of a discrete space, as plain classes, MiniGrid and the Arcade Learning Environment give them."""
    meanings = getattr(base, "get_action_meanings", None)
    given = getattr(base, "action_names", None) or getattr(base, "actions", None)
    if callable(meanings):
        return [str(name) for name in meanings()]
    if inspect.isclass(given) and hasattr(given, "__members__"):
        return list(given.__members__)
    if isinstance(given, (list, tuple)) and all(isinstance(name, str) for name in given):
        return list(given)
    return None


def _takes_seed(reset: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(one.name == "seed" or one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def _outcome_of(result: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
    """Five values as in Gymnasium, four as before its version 0.26, three, or a dictionary."""
    if isinstance(result, Mapping):
        given = (result.get(name) for name in ("observation", "reward", "terminated", "truncated", "info"))
        observation, reward, terminated, truncated, info = given
    elif isinstance(result, tuple) and len(result) in (3, 4, 5):
        observation, reward, terminated, *rest = result
        info = rest.pop() if rest and isinstance(rest[-1], Mapping) else {}
        truncated = rest[0] if rest else False
    else:
        raise TypeError("step must return (observation, reward, terminated, truncated, info)")
    if observation is None or reward is None:
        raise TypeError("step must return an observation and a reward, got None")
    return observation, reward, terminated, truncated, info or {}


def _info_of(info: Mapping[str, Any]) -> dict[str, Json]:
    """The entries of an info that have a form in JSON; the others, such as pictures and objects, are left out."""
    written: dict[str, Json] = {}
    for name, value in info.items():
        if name in _VALID_KEYS:
            continue
        try:
            written[str(name)] = json_of(value)
        except NoForm:
            continue
        if name in _FLAGS:
            written[str(name)] = bool(value)
    return written
