"""Local files for uploads and downloads: what is there, and where it goes."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional, Union

from .exceptions import PandastackError
from .models import TransferProgress

#: A path of the local machine.
LocalPath = Union[str, "os.PathLike[str]"]

#: How much is read and written at once.
PIECE = 256 * 1024


@dataclass(frozen=True)
class Tree:
    """A local directory to upload, relative to its root."""

    files: list[tuple[str, Path, int, bool]] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    directories: list[str] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    #: Symbolic links, and where they lead.
    links: list[tuple[str, str]] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, _, size, _ in self.files)


def look(root: Path) -> Tree:
    """Files with size and whether they are programs, empty directories, and symbolic links, which are not followed."""
    tree = Tree()
    for here, directories, names in os.walk(root):
        relative = Path(here).relative_to(root).as_posix()
        for name in sorted([*directories, *names]):
            link = os.path.join(here, name)
            if os.path.islink(link):
                tree.links.append((name if relative == "." else f"{relative}/{name}", os.readlink(link).replace(os.sep, "/")))
        directories[:] = sorted(one for one in directories if not os.path.islink(os.path.join(here, one)))
        names = [one for one in names if not os.path.islink(os.path.join(here, one))]
        if not directories and not names and relative != ".":
            tree.directories.append(relative)
        for name in sorted(names):
            path = Path(here, name)
            if not path.is_file():
                continue  # Sockets, devices.
            stat = path.stat()
            within = name if relative == "." else f"{relative}/{name}"
            tree.files.append((within, path, stat.st_size, bool(stat.st_mode & 0o111)))
    return tree


def absolute(home: str, path: str) -> str:
    """A path in a guest that was given relative to the home directory; ``~`` stands for that directory too."""
    if path == "~" or path.startswith("~/"):
        path = path[2:]
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return home if path in ("", ".") else f"{home.rstrip('/')}/{path}"


def stays_inside(root: Path, link: Path, target: str) -> bool:
    """Whether a link below ``root`` leads to something below it. What a guest says must not lead elsewhere on this machine."""
    if not target or target.startswith(("/", "\\")) or "\0" in target or os.path.isabs(target):
        return False
    parts = [one for one in target.replace("\\", "/").split("/") if one not in ("", ".")]
    up = next((index for index, one in enumerate(parts) if one != ".."), len(parts))
    # A ".." after a name could follow another link first, and then lead out.
    return ".." not in parts[up:] and up < len(link.relative_to(root).parts)


def make_directory(path: Path, *, top: bool) -> None:
    """Makes a local directory to write to. Below the top, a link in its place is replaced: it could lead anywhere."""
    if not top and path.is_symlink():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)


def make_link(path: Path, target: str) -> None:
    """Makes a local symbolic link, instead of the file or link that is in its place."""
    aside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    try:
        os.replace(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def safe_name(name: str) -> str:
    """A file's name as the guest tells it, refused when it would lead out of the directory it is written to."""
    if name in ("", ".", "..") or any(bad in name for bad in ("/", "\0", os.sep, os.altsep or "/")):
        raise PandastackError(f"the sandbox has a file that cannot be written here: {name!r}")
    return name


def is_program(mode: str) -> bool:
    """Whether a mode such as ``-rwxr-xr-x`` lets any user run it."""
    return any(letter in mode[1:] for letter in "xst")


class Meter:
    """Counts bytes and files of a transfer, and calls back. Several workers may count at once."""

    def __init__(self, total: int, files: int) -> None:
        self._total = total
        self._files = files
        self._done = 0
        self._files_done = 0
        self._lock = threading.Lock()

    def add(self, path: object, count: int, *, finished: bool = False) -> TransferProgress:
        """So many bytes more; perhaps the file's last."""
        with self._lock:
            self._done += count
            self._files_done += finished
            return TransferProgress(str(path), self._done, max(self._total, self._done), self._files_done, self._files)


class Arrival:
    """A local file that is being written: aside first, so that it is there whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        self._file = self._aside.open("wb")

    def write(self, piece: bytes) -> None:
        """Writes on."""
        self._file.write(piece)

    def finish(self, program: bool) -> None:
        """Puts it where it belongs."""
        self._file.close()
        if program:
            self._aside.chmod(self._aside.stat().st_mode | 0o111)
        os.replace(self._aside, self._path)

    def abandon(self) -> None:
        """Leaves nothing behind."""
        self._file.close()
        self._aside.unlink(missing_ok=True)


#: Called back with how far a transfer is.
OnProgress = Optional[Callable[[TransferProgress], object]]
