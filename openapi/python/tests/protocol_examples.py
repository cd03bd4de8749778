"""An environment for OpenEnv and one for the Open Reward Standard, as their packages' users write them."""

from __future__ import annotations

import random
from typing import Any

try:
    from openenv.core.env_server.interfaces import Environment as OpenEnvironment
    from openenv.core.env_server.types import Action, Observation, State
except ModuleNotFoundError:
    OpenEnvironment = None

if OpenEnvironment is not None:

    class Guess(Action):  # type: ignore[misc]
        number: int

    class Hint(Observation):  # type: ignore[misc]
        hint: str

    class GuessEnvironment(OpenEnvironment):  # type: ignore[misc]
        """Guess a number from 1 to 3."""

        def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Hint:
            self.secret = random.Random(seed).randint(1, 3)
            return Hint(hint="Guess.")

        def step(self, action: Guess, timeout_s: float | None = None, **more: Any) -> Hint:
            right = action.number == self.secret
            return Hint(hint="Right." if right else "Wrong.", reward=float(right), done=right)

        @property
        def state(self) -> State:
            return State()


try:
    from ors import Environment as RewardEnvironment
    from ors import TextBlock, ToolOutput, tool
    from pydantic import BaseModel
except ModuleNotFoundError:
    RewardEnvironment = None

if RewardEnvironment is not None:

    class Answer(BaseModel):  # type: ignore[misc, unused-ignore]
        number: int

    class Sums(RewardEnvironment):  # type: ignore[misc]
        """Adds two numbers."""

        @classmethod
        def list_splits(cls) -> list[str]:
            return ["train"]

        @classmethod
        def list_tasks(cls, split: str) -> list[dict[str, Any]]:
            return [{"a": a, "b": a + 1} for a in range(5)]

        def get_prompt(self) -> list[TextBlock]:
            return [TextBlock(text=f"{self.task_spec['a']} + {self.task_spec['b']}")]

        @tool  # type: ignore[untyped-decorator]
        def answer(self, params: Answer) -> ToolOutput:
            """Gives the sum."""
            right = params.number == self.task_spec["a"] + self.task_spec["b"]
            return ToolOutput(blocks=[TextBlock(text="done")], reward=float(right), finished=True)
