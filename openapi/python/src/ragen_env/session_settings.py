"""Which environment is played, and how: what one environment and a vector of them have in common."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from .client import Client, shared_client
from .models import Environment
from .settings import Transport
from .spaces import space_of


def rgb_of(png: str) -> NDArray[np.uint8]:
    """A PNG in base64 as an array [height, width, 3]."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
        return np.array(picture.convert("RGB"), dtype=np.uint8)


def frame_of(mode: str, rendering: Any) -> Any:
    """What Gymnasium's render mode gives of a rendering of the server."""
    return rgb_of(rendering["png"]) if mode == "rgb_array" else rendering["text"]


SERVER_MODES = {"ansi": "text", "rgb_array": "png"}
"""Gymnasium's render modes and the server's."""
RENDER_FPS = 4


_PICTURES = ("image", "parts")
"""Observation formats that no space of Gymnasium describes."""
SEED_BOUND = 2**53
"""The server's seeds are below it."""


@dataclass(frozen=True)
class SessionSettings:
    """What every session of an environment is opened with."""

    env_id: str
    config: dict[str, Any] | None
    wrappers: list[dict[str, Any]] | None
    observation_format: str
    ttl_s: float | None

    def fields(self) -> dict[str, Any]:
        """Fields of the operation ``create``; those that are None are left to the server."""
        fields = {
            "env_id": self.env_id,
            "config": self.config,
            "wrappers": self.wrappers,
            "observation_format": self.observation_format,
            "ttl_s": self.ttl_s,
        }
        return {name: value for name, value in fields.items() if value is not None}


class Described:
    """An environment of a server, under a configuration."""

    def __init__(
        self,
        settings: SessionSettings,
        base_url: str | None,
        token: str | None,
        transport: Transport,
        client: Client | None,
        render_mode: str | None,
    ):
        self.settings = settings
        self.client = client or shared_client(base_url, token=token, transport=transport)
        self.document: Environment = self.client.describe_environment(
            settings.env_id,
            config=settings.config,
            wrappers=settings.wrappers,  # type: ignore[arg-type]
        )
        formats = self.document["observation_formats"]
        if settings.observation_format not in formats or settings.observation_format in _PICTURES:
            known = ", ".join(name for name in formats if name not in _PICTURES)
            raise ValueError(
                f"{settings.env_id} has the observation formats {known}, got {settings.observation_format!r}; "
                "for pictures use render_mode='rgb_array' and gymnasium.wrappers.AddRenderObservation"
            )
        modes = self.render_modes
        if render_mode is not None and render_mode not in modes:
            raise ValueError(f"{settings.env_id} has the render modes {', '.join(modes)}, got {render_mode!r}")

    @property
    def render_modes(self) -> list[str]:
        known = self.document["render_modes"]
        return [mode for mode, server_mode in SERVER_MODES.items() if server_mode in known or mode in known]

    @property
    def takes_seeds(self) -> bool:
        return self.document["capabilities"]["seed"]

    def observation_space(self) -> spaces.Space[Any]:
        structured = self.settings.observation_format == "structured"
        document = self.document["structured_observation_space" if structured else "observation_space"]
        return space_of(document["gymnasium"])

    def action_space(self) -> spaces.Space[Any]:
        return space_of(self.document["action_space"]["gymnasium"])

    def episode_seed(self, seed: int | None, random: np.random.Generator) -> int | None:
        """The seed of the next episode: the given one, or the next of the generator that the last one made."""
        if seed is not None:
            return int(seed)
        return int(random.integers(SEED_BOUND)) if self.takes_seeds else None
