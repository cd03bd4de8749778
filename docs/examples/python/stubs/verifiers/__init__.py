"""The part of verifiers' interface that an environment of many turns uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar


@dataclass
class UserMessage:
    content: str
    role: Literal["user"] = "user"


@dataclass
class AssistantMessage:
    content: str | None = None
    role: Literal["assistant"] = "assistant"


Messages = list[UserMessage | AssistantMessage]
F = TypeVar("F", bound=Callable[..., Awaitable[None]])


class State(dict[str, Any]):
    pass


@dataclass
class Rubric:
    funcs: list[Callable[..., Awaitable[float]]] = field(default_factory=list)
    weights: list[float] | None = None


def cleanup(function: F) -> F:
    function.cleanup = True  # type: ignore[attr-defined]
    return function


class Environment:
    def __init__(self, dataset: Any = None, rubric: Rubric | None = None, **kwargs: Any):
        self.dataset = dataset
        self.rubric = rubric or Rubric()


class MultiTurnEnv(Environment):
    def __init__(self, max_turns: int = -1, timeout_seconds: float | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.max_turns = max_turns

    async def setup_state(self, state: State) -> State | None:
        return state

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:
        raise NotImplementedError

    async def rollout(self, input: dict[str, Any], client: Callable[[Messages], str], model: str) -> State:
        """The order of verifiers' rollout, with a function in the place of a client."""
        state = State(input, trajectory=[])
        state = await self.setup_state(state) or state
        messages: Messages = list(state["prompt"])
        while len(state["trajectory"]) < self.max_turns and state.get("final_env_response") is None:
            completion = AssistantMessage(content=client(messages))
            state["trajectory"].append({"prompt": list(messages), "completion": [completion], "reward": None})
            messages.append(completion)
            messages += await self.env_response(messages, state)
        for name in dir(self):
            member = getattr(self, name)
            if getattr(member, "cleanup", False):
                await member(state)
        return state
