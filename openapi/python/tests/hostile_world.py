"""An environment that does what its actions say, good or bad."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import numpy as np


class Hostile:
    """Do as you like."""

    example_actions = ["wait"]
    opened = 0

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.count = 0

    def reset(self, seed: int | None = None) -> str:
        self.count = 0
        return f"seed {seed}"

    def step(self, action: str) -> Any:
        assert threading.get_ident() == self.thread, "an environment is played on the thread that made it"
        self.count += 1
        if action == "raise":
            raise RuntimeError("the dice are gone")
        if action == "exit":
            sys.exit(3)
        if action == "die":
            os._exit(3)
        if action.startswith("sleep "):
            time.sleep(float(action.split()[1]))
        if action == "print":
            print("a line on standard output", flush=True)
        if action == "nan reward":
            return "", float("nan"), False
        if action == "nothing":
            return None
        if action == "end":
            return "over", np.float32(1), np.bool_(True)
        if action == "numpy":
            observation = {"row": np.arange(3), "x": np.float32(0.5), "nan": np.float64("nan"), "flag": np.bool_(True)}
            return observation, np.float64(0.25), np.bool_(False), np.bool_(False), {"n": np.int64(3), "self": self}
        if action.startswith("long "):
            return "x" * int(action.split()[1]), 0, False
        return f"{self.count}", 0.0, False, False, {}
