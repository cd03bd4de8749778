"""Schemathesis makes requests from the server's OpenAPI document, fitting and broken, and holds the replies against it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from conftest import Server

EXAMPLES = 10
SEED = 1
SECONDS = 300
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,response_headers_conformance"
)


@pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None, reason="needs schemathesis: pip install schemathesis==4.32.5"
)
def test_every_reply_keeps_to_the_openapi_document(server: Server) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    options = ["--checks", CHECKS, "--max-examples", str(EXAMPLES), "--seed", str(SEED), "--no-color"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=SECONDS, cwd=server.folder
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tested: " in done.stdout
