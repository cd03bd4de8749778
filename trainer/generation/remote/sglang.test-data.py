"""Holds requests, and a reply to one, against SGLang's own source, which is enough without the packages that it runs with.

Usage: ... < {"requests": [[ROUTE, BODY], ...], "reply": REPLY}; prints SGLang's version and what it finds wrong.
"""

import ast
import importlib.metadata
import json
import sys
import types
from pathlib import Path

distribution = importlib.metadata.distribution("sglang")
root = Path(str(distribution.locate_file("sglang")))
# The package's own __init__ imports torch; so does the part for watermarks, which no request names.
package = types.ModuleType("sglang")
package.__path__ = [str(root)]
watermarks = types.ModuleType("sglang.srt.sampling.watermarking.core")
watermarks.WatermarkRequestConfig = type(None)
watermarks.normalize_watermark_request = lambda config: config
sys.modules.update({"sglang": package, watermarks.__name__: watermarks})

from sglang.api.v1.api_types import GenerateRequest, GenerateResponse  # noqa: E402
from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: E402

source = ast.parse((root / "srt/managers/io_struct.py").read_text())
routes = (root / "srt/entrypoints/http_server.py").read_text()
CLASSES = {
    "/load_lora_adapter": "LoadLoRAAdapterReqInput",
    "/unload_lora_adapter": "UnloadLoRAAdapterReqInput",
    "/update_weights_from_disk": "UpdateWeightFromDiskReqInput",
}


def fields(name):
    """Fields of a request's class, and whether each must be there."""
    (body,) = [node.body for node in source.body if isinstance(node, ast.ClassDef) and node.name == name]
    return {node.target.id: node.value is None for node in body if isinstance(node, ast.AnnAssign)}


def faults(route, body):
    if f'"{route}"' not in routes:
        yield f"no route {route}"
    if route == "/generate":
        GenerateRequest.from_json_value(body)
        SamplingParams(**body["sampling_params"]).verify(1000)
        return
    known = fields(CLASSES[route])
    yield from (f"{route} knows no {key}" for key in body if key not in known)
    yield from (f"{route} lacks {key}" for key, needed in known.items() if needed and key not in body)


given = json.load(sys.stdin)
wrong = []
for route, body in given["requests"]:
    try:
        wrong += faults(route, body)
    except (ValueError, TypeError) as error:
        wrong.append(f"{route}: {error}")
meta = GenerateResponse.from_json_value(given["reply"]).meta_info
read = {"tokens": len(meta.output_token_logprobs), "finish": type(meta.finish_reason).__name__}
print(json.dumps({"version": distribution.version, "wrong": wrong, **read, "weights": meta.weight_version}))
