"""Environments that were written for another protocol, played in this process: OpenEnv's and the Open Reward Standard's."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from .families import MissingPart, number_of

_MAX_TASKS = 10_000


def _class_of(name: str, prefix: str) -> Any:
    module_name, _, class_name = name.partition(":")
    if not class_name:
        raise MissingPart(f"{prefix}:{name} names no class: write {prefix}:module:Class")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except ModuleNotFoundError as error:
        raise MissingPart(f"there is no module {error.name} in {Path.cwd()} or among the installed packages") from None
    if not inspect.isclass(found):
        raise MissingPart(f"{module_name} has no class {class_name}")
    return found


class OpenEnvWorld:
    """An environment of OpenEnv. An action is JSON with the fields of its action class."""

    def __init__(self, name: str, **kwargs: Any):
        import typing

        environment = _class_of(name, "openenv")
        self.world_name = environment.__name__
        self.instruction = inspect.cleandoc(environment.__doc__ or "").split("\n\n")[0]
        hints = typing.get_type_hints(environment.step)
        action: Any = hints.get("action")
        self._action = action
        if not hasattr(action, "model_validate"):
            raise MissingPart(f"{environment.__name__}.step must name the class of its action, e.g. action: MyAction")
        fields = [key for key in action.model_fields if key != "metadata"]
        self._only = fields[0] if len(fields) == 1 and action.model_fields[fields[0]].annotation is str else None
        self.example_actions = ["a text"] if self._only else [json.dumps({key: "…" for key in fields}, ensure_ascii=False)]
        self._env = environment(**kwargs)

    def reset(self, seed: int | None = None) -> Any:
        observation, _, _, _, info = self._read(self._env.reset(seed=seed))
        return observation, info

    def step(self, action: str) -> Any:
        try:
            fields = {self._only: action} if self._only else json.loads(action)
            member = self._action.model_validate(fields)
        except ValueError as error:
            return f"Not an action: {error}"[:2000], 0.0, False, False, {"action_is_valid": False}
        return self._read(self._env.step(member))

    def _read(self, observation: Any) -> Any:
        fields = observation.model_dump(mode="json")
        done, reward = bool(fields.pop("done", False)), float(fields.pop("reward", None) or 0)
        info = fields.pop("metadata", None) or {}
        shown = next(iter(fields.values())) if len(fields) == 1 else fields
        return shown, reward, done, False, info

    def close(self) -> None:
        close = getattr(self._env, "close", None)
        if callable(close):
            close()


class RewardStandardWorld:
    """An environment of the Open Reward Standard. An action is JSON, {"tool": …, "input": {…}}; a seed names a task."""

    def __init__(self, name: str, split: str = "train", max_steps: int = 100):
        self._class = _class_of(name, "ors")
        self.world_name, self.max_steps, self._split = self._class.__name__, max_steps, split
        self._loop = asyncio.new_event_loop()
        self._tasks = list(self._run(self._class.list_tasks(split)))[:_MAX_TASKS]
        if not self._tasks:
            raise MissingPart(f"{self.world_name} has no tasks in its split {split!r}")
        tools = self._class.list_tools().tools
        self.instruction = "Call a tool: " + "; ".join(f"{tool.name}: {tool.description}" for tool in tools)
        self.example_actions = [json.dumps({"tool": tool.name, "input": {}}) for tool in tools]
        self._env: Any = None

    def _run(self, value: Any) -> Any:
        return self._loop.run_until_complete(value) if inspect.isawaitable(value) else value

    def reset(self, seed: int | None = None) -> Any:
        self._end()
        self._env = self._class(task_spec=self._tasks[number_of(seed, len(self._tasks))])
        self._run(self._env.setup())
        return _text(self._run(self._env.get_prompt())), {}

    def step(self, action: str) -> Any:
        try:
            call = json.loads(action)
            tool, given = call["tool"], call.get("input", {})
        except (ValueError, KeyError, TypeError, AttributeError):
            return 'Not an action: write {"tool": "name", "input": {}}', 0.0, False, False, {"action_is_valid": False}
        output = self._run(self._env._call_tool(tool, given)).root
        if not output.ok:
            return f"The tool failed: {output.error}"[:2000], 0.0, False, False, {"action_is_valid": False}
        result = output.output
        return _text(result.blocks), float(result.reward or 0), bool(result.finished), False, {}

    def _end(self) -> None:
        if self._env is not None:
            self._run(self._env.teardown())
            self._env = None

    def close(self) -> None:
        self._end()
        self._loop.close()


def _text(blocks: Any) -> str:
    return "\n".join(block.text for block in blocks if getattr(block, "text", None))
