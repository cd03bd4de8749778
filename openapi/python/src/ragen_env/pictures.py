"""Pictures of the server as arrays."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
