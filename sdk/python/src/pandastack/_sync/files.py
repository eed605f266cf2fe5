# Generated from ../_async/files.py by scripts/generate_sync.py. Do not edit.
"""Files of a sandbox."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, List, Optional, Tuple, Union

import httpx

from .._json import as_list, as_object
from .._local import (
    PIECE,
    Arrival,
    LocalPath,
    Meter,
    OnProgress,
    Tree,
    absolute,
    is_program,
    look,
    make_directory,
    make_link,
    safe_name,
    stays_inside,
)
from .._runtime_sync import Pieces, call, each, in_thread, pieces, pieces_of
from ..exceptions import NotFoundError, PandastackError
from ..models import ExecResult, FileInfo, FileWritten
from .transport import STREAM_TIMEOUT, Transport, Body
from .watching import Watch

#: Files that are sent or fetched at once.
_AT_ONCE = 4


class Filesystem:
    """The files of a sandbox: ``sandbox.filesystem``, or shorter ``sandbox.files``.

    A path that does not begin with ``/`` is one below the home directory, where commands run too: ``/root``, unless the
    template has another. The guest is asked for it once.

    sandbox.files.write("/root/hello.txt", "hello")
    print(sandbox.files.read_text("/root/hello.txt"))
    sandbox.files.upload("project", "/root/project")
    """

    def __init__(self, transport: Transport, sandbox_path: str) -> None:
        self._transport = transport
        self._sandbox_path = sandbox_path
        self._path = f"{sandbox_path}/fs"
        self._home: Optional[str] = None

    def read(self, path: str) -> bytes:
        """A file's contents. For large files see :meth:`stream` and :meth:`download`."""
        path = self._at(path)
        response = self._transport.open("GET", self._path, params={"path": path}, headers=_BYTES, warm_up=True)
        return self._transport.read(response)

    def read_text(self, path: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """A file's contents as text."""
        return (self.read(path)).decode(encoding, errors)

    def stream(self, path: str) -> Generator[bytes, None, None]:
        """A file's contents piece by piece, however large it is.

        for piece in sandbox.files.stream("/var/log/syslog"):
            ...
        """
        path = self._at(path)
        response = self._transport.open("GET", self._path, params={"path": path}, headers=_BYTES, warm_up=True)
        for piece in self._transport.pieces(response):
            yield piece

    def write(self, path: str, content: Union[str, bytes, BinaryIO, Pieces]) -> FileWritten:
        """Writes a file, as a whole or not at all. Missing directories are made.

        :param content: text, bytes, a file opened for reading in binary, or an iterable of bytes; the last two are sent
            while they are read.
        """
        path = self._at(path)
        if isinstance(content, str):
            content = content.encode()
        if isinstance(content, (bytes, bytearray, memoryview)):
            whole = bytes(content)
            return self._put(path, lambda: whole, size=len(whole), again=True)
        if hasattr(content, "read"):
            file: Any = content
            return self._put(path, lambda: pieces_of(file, None, PIECE), size=None, again=False)
        given: Any = content
        return self._put(path, lambda: pieces(given), size=None, again=False)

    def list(self, path: str = "/") -> List[FileInfo]:
        """What is in a directory, by name."""
        entries, truncated = self._listing(self._at(path))
        if truncated:
            warnings.warn(f"{path} has more entries than the server lists", RuntimeWarning, stacklevel=2)
        return entries

    def listdir(self, path: str = "/") -> List[FileInfo]:
        """The same as :meth:`list`."""
        return self.list(path)

    def walk(self, path: str = "/") -> Iterator[Tuple[str, List[FileInfo], List[FileInfo]]]:
        """A directory and all below it, as :func:`os.walk` does: ``(path, directories, files)``.

        Links to directories count as files and are not followed.
        """
        rest = [self._at(path)]
        while rest:
            here = rest.pop()
            entries = self.list(here)
            directories = [one for one in entries if one.is_dir and one.link_target is None]
            yield here, directories, [one for one in entries if not one.is_dir or one.link_target is not None]
            rest.extend(one.path for one in reversed(directories))

    def stat(self, path: str) -> FileInfo:
        """About a file or directory. :class:`NotFoundError` when there is none."""
        where = self._at(path)
        answer = self._transport.request("GET", f"{self._path}/stat", params={"path": where}, warm_up=True)
        return FileInfo.from_dict(answer)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        try:
            self.stat(path)
        except NotFoundError:
            return False
        return True

    def mkdir(self, path: str, mode: Optional[str] = None) -> None:
        """Makes a directory, with its parents. ``mode`` is octal, such as ``"0755"``."""
        self._change("mkdir", self._at(path), mode=mode)

    def chmod(self, path: str, mode: str) -> None:
        """Changes permissions. ``mode`` is octal, such as ``"0755"``."""
        self._change("chmod", self._at(path), mode=mode)

    def rename(self, path: str, to: str) -> None:
        """Moves a file or a directory."""
        self._change("move", self._at(path), to=self._at(to))

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with everything in it."""
        self._transport.request("DELETE", self._path, params={"path": self._at(path)}, warm_up=True)

    def watch(self, path: str, recursive: bool = False) -> Watch:
        """Changes of a file or below a directory, while they happen.

            with sandbox.files.watch("/root/project", recursive=True) as changes:
                for change in changes:
                    print(change.kind, change.path)

        Within ``with`` nothing is missed from its first line on; without it, from when the iteration begins on. At the
        end of the block, or with ``close()``, watching ends.

        :param recursive: directories below it too.
        """

        def opening() -> httpx.Response:
            return self._transport.open(
                "GET",
                f"{self._path}/watch",
                params={"path": self._at(path), "recursive": "true" if recursive else "false"},
                headers={"Accept": "text/event-stream"},
                timeout=self._transport.patience(STREAM_TIMEOUT),
                warm_up=True,
            )

        return Watch(self._transport, opening, path)

    def download_url(self, path: str, expires_in_seconds: Optional[int] = None) -> str:
        """A link that gives a file's contents without a key, for an hour or as long as said (a week at most).

        print(sandbox.files.download_url("/root/report.pdf"))     # for curl, browsers, other programs
        """
        return self._sign(path, "read", expires_in_seconds)

    def upload_url(self, path: str, expires_in_seconds: Optional[int] = None) -> str:
        """A link to which a file's contents can be sent without a key (``PUT``), for an hour or as long as said."""
        return self._sign(path, "write", expires_in_seconds)

    def upload(self, local_path: LocalPath, remote_path: str, on_progress: OnProgress = None) -> FileWritten:
        """Sends a local file, or a directory with everything below it.

        Symbolic links below the directory stay links. Whether files are programs is kept, other permissions are not.
        ``on_progress`` is called with a :class:`TransferProgress` for each piece.
        """
        local = Path(local_path)
        remote_path = self._at(remote_path)
        if not in_thread(local.is_dir):
            size = (in_thread(local.stat)).st_size
            program = bool((in_thread(local.stat)).st_mode & 0o111)
            meter = Meter(size, 1)
            return self._send(local, remote_path, size, program, meter, on_progress)
        tree: Tree = in_thread(lambda: look(local))
        root = remote_path.rstrip("/") or "/"
        below = root if root != "/" else ""
        self.mkdir(root)
        for directory in tree.directories:
            self.mkdir(f"{below}/{directory}")
        meter = Meter(tree.size, len(tree.files))

        def one(file: Tuple[str, Path, int, bool]) -> None:
            relative, path, size, program = file
            self._send(path, f"{below}/{relative}", size, program, meter, on_progress)

        each(tree.files, one, _AT_ONCE)
        self._link([(f"{below}/{relative}", target) for relative, target in tree.links])
        return FileWritten(root, tree.size)

    def download(self, remote_path: str, local_path: LocalPath, on_progress: OnProgress = None) -> None:
        """Fetches a file, or a directory with everything below it.

        Each file is there whole or not at all. Symbolic links stay links; those that lead out of the directory are left out,
        with a warning.
        """
        local = Path(local_path)
        remote_path = self._at(remote_path)
        top = self.stat(remote_path)
        if not top.is_dir:
            self._fetch(top, local, Meter(top.size, 1), on_progress)
            return
        found: List[Tuple[FileInfo, Path]] = []
        links: List[Tuple[str, Path]] = []
        left_out: List[str] = []
        rest = [(remote_path, local)]
        while rest:
            here, there = rest.pop()
            entries, truncated = self._listing(here)
            if truncated:
                raise PandastackError(f"{here} has more entries than the server lists; fetch an archive of it instead")
            in_thread(functools.partial(make_directory, there, top=there is local))
            for entry in entries:
                target = there / safe_name(entry.name)
                if entry.link_target is not None:
                    if stays_inside(local, target, entry.link_target):
                        links.append((entry.link_target, target))
                    else:
                        left_out.append(f"{entry.path} -> {entry.link_target}")
                elif entry.is_dir:
                    rest.append((entry.path, target))
                else:
                    found.append((entry, target))
        meter = Meter(sum(entry.size for entry, _ in found), len(found))

        def one(file: Tuple[FileInfo, Path]) -> None:
            self._fetch(file[0], file[1], meter, on_progress)

        each(found, one, _AT_ONCE)
        # Last, so that nothing is written through them.
        for link, there in links:
            in_thread(functools.partial(make_link, there, link))
        if left_out:
            more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
            warnings.warn(
                f"links that lead out of {remote_path} were left out: {', '.join(left_out[:5])}{more}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _at(self, path: str) -> str:
        """An absolute path: one that is relative begins at the home directory."""
        if path.startswith("/") or not path:
            return path
        if self._home is None:
            answer = self._transport.request(
                "POST", f"{self._sandbox_path}/exec", json={"cmd": "pwd", "timeout_seconds": 30}, warm_up=True
            )
            home = ExecResult.from_dict(answer).stdout.rstrip("\n")
            self._home = home if home.startswith("/") else "/root"
        return absolute(self._home, path)

    def _sign(self, path: str, operation: str, expires_in_seconds: Optional[int]) -> str:
        body: dict[str, Any] = {"path": self._at(path), "operation": operation}
        if expires_in_seconds is not None:
            body["expires_in_seconds"] = expires_in_seconds
        return str(as_object(self._transport.request("POST", f"{self._path}/sign", json=body))["url"])

    def _link(self, links: List[Tuple[str, str]]) -> None:
        """Makes symbolic links in the guest, many at once: pairs of a path and where it leads."""
        for start in range(0, len(links), _LINKS_AT_ONCE):
            words = [word for path, target in links[start : start + _LINKS_AT_ONCE] for word in (target, path)]
            answer = self._transport.request(
                "POST",
                f"{self._sandbox_path}/exec",
                json={"cmd": ["sh", "-c", _LINK, "sh", *words], "timeout_seconds": 60},
                warm_up=True,
            )
            done = ExecResult.from_dict(answer)
            if not done.ok:
                raise PandastackError(f"a symbolic link could not be made: {done.stderr.strip()}")

    def _listing(self, path: str) -> Tuple[List[FileInfo], bool]:
        answer = self._transport.request("GET", f"{self._path}/dir", params={"path": path}, warm_up=True)
        entries: List[FileInfo] = []
        for given in as_list(as_object(answer).get("entries")):
            one = as_object(given)
            below = f"{path.rstrip('/')}/{one.get('name', '')}"
            entries.append(FileInfo.from_dict({**one, "path": one.get("path") or below}))
        return entries, bool(as_object(answer).get("truncated"))

    def _change(self, what: str, path: str, *, mode: Optional[str] = None, to: Optional[str] = None) -> None:
        body = {"path": path, "mode": mode, "to": to}
        self._transport.request(
            "POST",
            f"{self._path}/{what}",
            json={key: value for key, value in body.items() if value is not None},
            warm_up=True,
        )

    def _put(self, path: str, body: Body, *, size: Optional[int], again: bool) -> FileWritten:
        headers = {"Content-Type": "application/octet-stream"}
        if size is not None:
            headers["Content-Length"] = str(size)
        answer = self._transport.request(
            "PUT", self._path, params={"path": path}, body=body, headers=headers, warm_up=again
        )
        return FileWritten.from_dict(answer)

    def _send(
        self, local: Path, path: str, size: int, program: bool, meter: Meter, on_progress: OnProgress
    ) -> FileWritten:
        file = in_thread(lambda: local.open("rb"))

        def counted() -> Iterator[bytes]:
            for piece in pieces_of(file, size, PIECE):
                yield piece
                call(on_progress, meter.add(local, len(piece)))

        try:
            written = self._put(path, counted, size=size, again=False)
        finally:
            in_thread(file.close)
        if program:
            self.chmod(path, "0755")
        call(on_progress, meter.add(local, 0, finished=True))
        return written

    def _fetch(self, entry: FileInfo, local: Path, meter: Meter, on_progress: OnProgress) -> None:
        response = self._transport.open("GET", self._path, params={"path": entry.path}, headers=_BYTES, warm_up=True)
        arrival = in_thread(lambda: Arrival(local))
        try:
            for piece in self._transport.pieces(response):
                in_thread(functools.partial(arrival.write, piece))
                call(on_progress, meter.add(local, len(piece)))
            in_thread(lambda: arrival.finish(is_program(entry.mode)))
        except BaseException:
            arrival.abandon()
            raise
        call(on_progress, meter.add(local, 0, finished=True))


#: Symbolic links of one command. With two paths of at most 4 KiB each they stay below what a guest takes as arguments.
_LINKS_AT_ONCE = 100
_LINK = 'while [ $# -gt 1 ]; do ln -sfT -- "$1" "$2" || exit 1; shift 2; done'

_BYTES = {"Accept": "application/octet-stream, application/json"}
