"""Runs the examples of README.md, in order, against a real server. Needs PANDASTACK_API, else it skips and says so."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("PANDASTACK_API"):
        pytest.skip("PANDASTACK_API is not set: NO EXAMPLE WAS RUN")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PANDASTACK_MAX_CREATE_RETRY_SECONDS", "600")
    text = README.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "readme"}
    try:
        for found in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
            line = text[: found.start(1)].count("\n")
            # As many line ends before it as there are in the file, so that tracebacks name the right lines.
            exec(compile("\n" * line + found.group(1), str(README), "exec"), names)
    finally:
        for sandbox in names["client"].sandboxes.list() if "client" in names else []:
            if sandbox.metadata.get("task") == "42":
                sandbox.delete()
    assert Path("copy/src/main.py").read_text() == "print('hello')"
    assert names["result"].winner_outcome.label == "echo 7"
