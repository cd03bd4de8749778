"""Tests play on the server at RAGEN_TEST_URL; those that restart one start it by RAGEN_TEST_SERVER."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))



@pytest.fixture(scope="session")
def base_url() -> str:
    url = os.environ.get("RAGEN_TEST_URL")
    if not url:
        pytest.skip("needs the address of a server in RAGEN_TEST_URL")
    return url


class Server:
    """A server of the test's own, that can be ended and started again at the same port."""

    def __init__(self, command: list[str], data: Path):
        self.folder = data
        self._command = [*command, "--data", str(data), "--log-level", "silent", "--remote-networks", "127.0.0.1/32"]
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [*self._command, "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "http://127.0.0.1:" in line:
                self.port = int(line.split("http://127.0.0.1:")[1].split("/")[0].split()[0].strip('",'))
                break
        else:
            raise RuntimeError("the server did not start")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture()
def server(tmp_path: Path) -> Iterator[Server]:
    command = os.environ.get("RAGEN_TEST_SERVER")
    if not command:
        pytest.skip("needs the command of a server in RAGEN_TEST_SERVER")
    one = Server(json.loads(command), tmp_path)
    one.start()
    yield one
    one.kill()
