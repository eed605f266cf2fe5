"""What a cell of code showed, in the forms that notebooks understand."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any, Optional

from ._json import as_list, as_object


@dataclass(frozen=True)
class Result:
    """One thing that a cell showed: the same in several MIME types.

    In a notebook it displays itself: as a picture, a table, or whatever it has.

        >>> Result({"text/plain": "42"}).text
        '42'
    """

    #: By MIME type. Pictures in PNG and JPEG are in base64.
    data: dict[str, str]

    @property
    def text(self) -> Optional[str]:
        """As plain text."""
        return self.data.get("text/plain")

    @property
    def html(self) -> Optional[str]:
        """As HTML, such as a table."""
        return self.data.get("text/html")

    @property
    def markdown(self) -> Optional[str]:
        """As Markdown."""
        return self.data.get("text/markdown")

    @property
    def png(self) -> Optional[str]:
        """As a PNG picture in base64."""
        return self.data.get("image/png")

    @property
    def jpeg(self) -> Optional[str]:
        """As a JPEG picture in base64."""
        return self.data.get("image/jpeg")

    @property
    def svg(self) -> Optional[str]:
        """As an SVG picture."""
        return self.data.get("image/svg+xml")

    @property
    def json(self) -> Any:
        """As JSON, decoded; the text itself if it is none."""
        raw = self.data.get("application/json")
        if raw is None:
            return None
        try:
            return json.loads(raw)
        except ValueError:
            return raw

    @property
    def chart(self) -> Optional[str]:
        """The picture, in whichever form there is one."""
        return self.png or self.jpeg or self.svg

    def _repr_html_(self) -> Optional[str]:
        return self.html

    def _repr_markdown_(self) -> Optional[str]:
        return self.markdown

    def _repr_svg_(self) -> Optional[str]:
        return self.svg

    def _repr_png_(self) -> Optional[bytes]:
        return _bytes(self.png)

    def _repr_jpeg_(self) -> Optional[bytes]:
        return _bytes(self.jpeg)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return _chosen(self.bundle(), include, exclude)

    def bundle(self) -> dict[str, Any]:
        """Everything, by MIME type, as notebooks take it: JSON decoded."""
        bundle: dict[str, Any] = dict(self.data)
        if "application/json" in bundle:
            bundle["application/json"] = self.json
        return bundle


def _results() -> list[Result]:
    return []


def results_of(given: Any) -> list[Result]:
    """Results from decoded JSON: each a MIME bundle, or ``{"type": mime, "data": text}``."""
    results: list[Result] = []
    for item in as_list(given):
        bundle = as_object(item)
        if "type" in bundle:
            bundle = {str(bundle["type"]): bundle.get("data", "")}
        results.append(Result({key: str(value) for key, value in bundle.items()}))
    return results


@dataclass(frozen=True)
class Execution:
    """What code did. In a notebook it displays its last result."""

    results: list[Result] = field(default_factory=_results)
    stdout: str = ""
    stderr: str = ""
    #: The traceback, when the cell raised.
    error: Optional[str] = None
    #: 0, or 1 when the cell raised; of code that ran once, the exit code of its interpreter.
    exit_code: int = 0
    duration_ms: int = 0
    #: The context that a cell ran in.
    context_id: Optional[str] = None

    @classmethod
    def from_dict(cls, data: Any) -> Execution:
        """Makes one from decoded JSON."""
        given = as_object(data)
        error = given.get("error")
        context = given.get("context_id")
        return cls(
            results=results_of(given.get("results")),
            stdout=str(given.get("stdout") or ""),
            stderr=str(given.get("stderr") or ""),
            error=str(error) if error else None,
            exit_code=int(given.get("exit", given.get("exit_code")) or 0),
            duration_ms=int(given.get("duration_ms") or 0),
            context_id=str(context) if context else None,
        )

    @property
    def ok(self) -> bool:
        """Whether it did not raise."""
        return self.error is None and self.exit_code == 0

    @property
    def logs(self) -> dict[str, str]:
        """Standard output and standard error."""
        return {"stdout": self.stdout, "stderr": self.stderr}

    @property
    def text(self) -> Optional[str]:
        """The last result that has plain text."""
        return next((one.text for one in reversed(self.results) if one.text is not None), None)

    @property
    def html(self) -> Optional[str]:
        """The last result that has HTML."""
        return next((one.html for one in reversed(self.results) if one.html is not None), None)

    @property
    def png(self) -> Optional[str]:
        """The first PNG picture, in base64."""
        return next((one.png for one in self.results if one.png is not None), None)

    def _repr_html_(self) -> Optional[str]:
        return self.results[-1].html if self.results else None

    def _repr_png_(self) -> Optional[bytes]:
        return _bytes(self.results[-1].png) if self.results else None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if self.results:
            return _chosen(self.results[-1].bundle(), include, exclude)
        return _chosen({"text/plain": self.error or self.stdout or repr(self)}, include, exclude)


def _bytes(encoded: Optional[str]) -> Optional[bytes]:
    if encoded is None:
        return None
    try:
        return base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return None


def _chosen(bundle: dict[str, Any], include: Any, exclude: Any) -> dict[str, Any]:
    return {
        mime: value
        for mime, value in bundle.items()
        if (not include or mime in include) and (not exclude or mime not in exclude)
    }
