"""A resources server for NeMo Gym (0.7): its agents play every environment of a ragen server with one tool, `step`.

    python resources_servers/ragen/app.py Sokoban-v0 100 '{"preset": "simple"}' > sokoban.jsonl

writes a row of the data set for each seed: the prompt with the first observation, and the tool. The reward is the return
of the episode.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ragen_env
from fastapi import FastAPI, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel, ConfigDict, PrivateAttr

MAX_ACTIONS = 5
WRAPPER: Any = {"name": "action_text", "options": {"max_actions": MAX_ACTIONS, "think": False}}
FORMAT = "Play with the tool `step`; several actions are separated by ||."
OVER = "The episode is over. Answer without a tool call."
STEP = {
    "type": "function",
    "name": "step",
    "description": f"Takes up to {MAX_ACTIONS} actions and returns what is seen then.",
    "parameters": {
        "type": "object",
        "properties": {"actions": {"type": "string", "description": "Actions, separated by ||."}},
        "required": ["actions"],
        "additionalProperties": False,
    },
    "strict": True,
}


class RagenConfig(BaseResourcesServerConfig):
    base_url: str


class SeedRequest(BaseSeedSessionRequest):
    env_id: str
    seed: int
    config: dict[str, Any] = {}


class StepRequest(BaseModel):
    actions: str


class StepResponse(BaseModel):
    observation: str
    done: bool


class VerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")
    success: float


class Episode(BaseModel):
    """An episode in progress, by the cookie of its rollout."""

    session_id: str
    total: float = 0.0
    done: bool = False
    success: bool = False
    fault: str | None = None


class RagenServer(SimpleResourcesServer):
    ray_enabled = False
    config: RagenConfig
    _episodes: dict[str, Episode] = PrivateAttr(default_factory=dict)
    _client: ragen_env.AsyncClient | None = PrivateAttr(default=None)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/step")(self.step)
        return app

    @property
    def client(self) -> ragen_env.AsyncClient:
        self._client = self._client or ragen_env.AsyncClient(self.config.base_url)
        return self._client

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:
        key = request.session[SESSION_ID_KEY]
        await self.close(key)
        made = await self.client.create(body.env_id, config=body.config, wrappers=[WRAPPER], seed=body.seed)
        self._episodes[key] = Episode(session_id=made["session_id"])
        return BaseSeedSessionResponse()

    async def step(self, request: Request, body: StepRequest) -> StepResponse:
        episode = self._episodes.get(request.session[SESSION_ID_KEY])
        if episode is None or episode.done or episode.fault is not None:
            return StepResponse(observation=OVER, done=True)
        try:
            reply = await self.client.step(episode.session_id, f"<answer>{body.actions}</answer>")
        except ragen_env.RagenError as error:
            episode.fault = str(error)
            return StepResponse(observation=OVER, done=True)
        episode.total += reply["reward"]
        episode.success = bool(reply["info"].get("success"))
        episode.done = reply["terminated"] or reply["truncated"]
        return StepResponse(observation=f"{reply['observation']}\n{OVER if episode.done else ''}", done=episode.done)

    async def verify(self, request: Request, body: BaseVerifyRequest) -> VerifyResponse:
        """Rates the rollout; one that lost its episode counts for nothing."""
        episode = await self.close(request.session[SESSION_ID_KEY])
        fault = "the episode is not known here" if episode is None else episode.fault
        lost: dict[str, Any] = {"mask_sample": True, "failure_kind": "session_lost", "failure_reason": fault} if fault else {}
        total, success = (episode.total, episode.success) if episode else (0.0, False)
        return VerifyResponse(**body.model_dump(), reward=total, success=float(success), **lost)

    async def close(self, key: str) -> Episode | None:
        episode = self._episodes.pop(key, None)
        if episode is not None:
            try:
                await self.client.close_session(episode.session_id)
            except ragen_env.RagenError as error:
                episode.fault = episode.fault or (None if episode.done else str(error))
        return episode


def rows(env_id: str, count: int, config: dict[str, Any]) -> None:
    with ragen_env.Client() as client:
        instruction = client.describe_environment(env_id, config=config)["instruction"]
        for seed in range(count):
            session = client.create(env_id, config=config, seed=seed)
            client.close_session(session["session_id"])
            text = f"{instruction}\n{FORMAT}\n\n{session['observation']}"
            params = {"input": [{"role": "user", "content": text}], "tools": [STEP], "parallel_tool_calls": False}
            print(json.dumps({"responses_create_params": params, "env_id": env_id, "seed": seed, "config": config}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rows(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
    else:
        RagenServer.run_webserver()
