#!/usr/bin/env python3
"""Makes the sync client, `src/pandastack/_sync`, from the async one, `src/pandastack/_async`.

    python scripts/generate_sync.py           writes it
    python scripts/generate_sync.py --check   only says whether it is up to date (as a test does)

Names are replaced token by token, so nothing within strings changes but what the second table says. What threads and tasks do
differently is in `_runtime_sync.py` and `_runtime_async.py`, written by hand.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "pandastack"

DROPPED = {"async", "await"}

NAMES = {
    "AsyncClient": "Client",
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_runtime_async": "_runtime_sync",
    "aclose": "close",
    "aiter_bytes": "iter_bytes",
    "aread": "read",
    "get_default_async_client": "get_default_client",
    "set_default_async_client": "set_default_client",
}

# Words of docstrings and examples.
TEXT = [
    (re.compile(r"\basync (with|for|def)\b"), r"\1"),
    (re.compile(r"\(await ([^()]*(?:\([^()]*\))?[^()]*)\)\."), r"\1."),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\bAsync(PandaStack|Sandbox|Process|Terminal|OutputStream|Filesystem|Tunnel|Watch)"), r"\1"),
]

HEADER = "# Generated from ../_async/{name} by scripts/generate_sync.py. Do not edit.\n"


def sync(source: str) -> str:
    """A module of the sync client from one of the async client."""
    out: list[str] = []
    line, column = 1, 0
    skip_space = False
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.ENDMARKER:
            break
        # What lies between the tokens: spaces, and the line ends of continued lines.
        gap = ""
        while line < token.start[0]:
            gap += lines[line - 1][column:]
            line, column = line + 1, 0
        gap += lines[line - 1][column : token.start[1]] if line <= len(lines) else ""
        if skip_space:
            gap = gap.lstrip(" ")
        skip_space = False
        line, column = token.end
        out.append(gap)
        text = token.string
        if token.type == tokenize.NAME:
            if text in DROPPED:
                skip_space = True
                continue
            text = NAMES.get(text, text)
            if text.startswith("Async"):
                text = text[len("Async") :]
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            for pattern, replacement in TEXT:
                text = pattern.sub(replacement, text)
        out.append(text)
    result = "".join(out)
    result = re.sub(r"\bAwaitable\[([A-Za-z_.]+)\]", r"\1", result)
    result = re.sub(r"\bGenerator\[([A-Za-z_.]+), None\]", r"Generator[\1, None, None]", result)
    result = re.sub(r"from collections\.abc import (.*)\n", _imports, result)
    return result


def _imports(found: re.Match[str]) -> str:
    names = sorted({name.strip() for name in found.group(1).split(",")} - {"Awaitable"})
    return f"from collections.abc import {', '.join(names)}\n" if names else ""


def generate() -> dict[Path, str]:
    """All modules of the sync client."""
    made: dict[Path, str] = {}
    for path in sorted((PACKAGE / "_async").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name == "__init__.py":
            text = '"""The sync client, generated from the async one: see ``scripts/generate_sync.py``."""\n'
        made[PACKAGE / "_sync" / path.name] = HEADER.format(name=path.name) + sync(text)
    return made


def main() -> int:
    """Writes them, or looks whether they are up to date."""
    made = generate()
    target = PACKAGE / "_sync"
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    stale += [path for path in target.glob("*.py") if path not in made]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(PACKAGE.parent.parent)} is not up to date", file=sys.stderr)
        return 1 if stale else 0
    target.mkdir(exist_ok=True)
    for path in stale:
        if path in made:
            path.write_text(made[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
