"""Serves an environment with the Python server of the Open Reward Standard (package ors-sdk) until it is killed."""

import socket

import uvicorn
from ors import Environment, ImageBlock, Server, Split, TextBlock, ToolOutput, tool
from pydantic import BaseModel

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Guess(BaseModel):
    number: str


class Guessing(Environment):
    @classmethod
    def list_splits(cls):
        return [Split(name="train", type="train")]

    @classmethod
    def list_tasks(cls, split):
        return [{"number": str(number)} for number in range(3)]

    def get_prompt(self):
        return [TextBlock(text="Guess the number."), ImageBlock(data=PIXEL, mimeType="image/png")]

    @tool
    def guess(self, params: Guess) -> ToolOutput:
        """Guesses a number."""
        right = params.number == self.task_spec["number"]
        said = "Right!" if right else "Wrong. " + "No. " * 2000
        return ToolOutput(blocks=[TextBlock(text=said)], reward=1.0 if right else 0.0, finished=right)


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(f"listening on {listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(Server([Guessing]).app, log_level="error")).run(sockets=[listener])
