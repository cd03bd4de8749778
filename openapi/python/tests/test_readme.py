"""The examples of the README run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
EXAMPLES = re.findall(r"^## (.+?)$.*?^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("title,program", EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_examples_run(base_url: str, monkeypatch: pytest.MonkeyPatch, title: str, program: str) -> None:
    monkeypatch.setenv("RAGEN_URL", base_url)
    exec(compile(program, title, "exec"), {"__name__": "example"})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 6
