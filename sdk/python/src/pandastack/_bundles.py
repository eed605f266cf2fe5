"""Local files put together for builds and functions."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from ._local import LocalPath

#: Directories that functions are deployed without.
_LEFT_OUT = frozenset({"node_modules", "__pycache__", ".git", ".venv", "venv", "dist", ".next", ".turbo"})

#: A part of a form: a file's name, contents and type.
Part = tuple[str, bytes, str]


def bundle(path: LocalPath, entrypoint: str) -> bytes:
    """A file or directory as ``tar.gz``; a single file under the name of the entrypoint."""
    root = Path(path)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        if not root.is_dir():
            archive.add(root, arcname=entrypoint)
        else:
            for here, directories, names in os.walk(root):
                directories[:] = sorted(one for one in directories if one not in _LEFT_OUT)
                for name in sorted(names):
                    file = Path(here, name)
                    archive.add(file, arcname=file.relative_to(root).as_posix())
    return buffer.getvalue()


def dockerfile_text(given: LocalPath) -> str:
    """The text of a Dockerfile, given as a path or as the text itself."""
    text = os.fspath(given)
    try:
        return Path(text).read_text(encoding="utf-8") if "\n" not in text and Path(text).is_file() else text
    except OSError:
        return text  # Too long for a path, for example.


def context_parts(directory: LocalPath) -> dict[str, Part]:
    """The files of a build's context, by their paths within it."""
    root = Path(directory)
    parts: dict[str, Part] = {}
    for file in sorted(root.rglob("*")):
        if file.is_file():
            name = file.relative_to(root).as_posix()
            parts[name] = (name, file.read_bytes(), "application/octet-stream")
    return parts
