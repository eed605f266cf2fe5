"""Writes docs/reference/python.md to standard output: every public name of the package, from signatures and docstrings.

Run it from anywhere; it reads the source beside it. Classes of the asynchronous client are the same but for ``await``, so they are
named and not repeated.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any, Iterator

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import pandastack  # noqa: E402

HEAD = """# Python reference

<!-- Made from sdk/python/src by sdk/python/scripts/reference.py. Do not edit. -->

`pip install ./sdk/python` in a clone of the repository; [its README](../../sdk/python/README.md) is the introduction. What
PyPI calls `pandastack` is an older client with another interface until this version is published.

Everything is importable from `pandastack`. Each class whose name begins with `Async` has the methods of the class without it;
those that talk to the server are awaited, iterators are read with `async for`.
"""


def words(docstring: str | None) -> str:
    """A docstring as Markdown: roles as code, examples as code blocks, parameters as a list."""
    text = inspect.cleandoc(docstring or "")
    text = re.sub(r":(?:class|meth|func):`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`")
    lines: list[str] = []
    code = False
    for line in text.splitlines():
        field = re.match(r":(param|raises) ([\w.]+): ?(.*)", line)
        # Indented lines are an example, unless they go on with a field.
        indented = line.startswith("    ") and not (lines and (lines[-1].startswith("- `") or lines[-1].startswith("  ")))
        if indented and not code:
            lines += ["", "```py"]
            code = True
        elif code and line and not indented:
            lines += ["```", ""]
            code = False
        if field:
            name = f"`{field[2]}`" if field[1] == "param" else f"raises `{field[2]}`"
            if lines and not lines[-1].startswith("- ") and lines[-1] != "" and not lines[-1].startswith("  "):
                lines.append("")
            line = f"- {name}: {field[3]}" if field[1] == "param" else f"- {name} {field[3]}"
        elif code:
            line = line[4:]
        elif line.startswith("    "):
            line = "  " + line.strip()
        lines.append(line.rstrip())
    if code:
        lines.append("```")
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return re.sub(r"\n+```(\n|$)", r"\n```\1", joined)


def signature(function: Any) -> str:
    """A signature without ``self``, with a line for each parameter when it is long."""
    given = inspect.signature(function)
    shown: list[str] = []
    starred = False
    for one in given.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        mark = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        kind = "" if one.annotation is one.empty else f": {one.annotation}"
        default = "" if one.default is one.empty else f" = {one.default!r}"
        shown.append(f"{mark}{one.name}{kind}{default}")
    answer = "" if given.return_annotation is given.empty else f" -> {given.return_annotation}"
    text = f"({', '.join(shown)}){answer}"
    if len(text) > 100:
        text = "(\n" + "".join(f"    {one},\n" for one in shown) + f"){answer}"
    return text


def shown(cls: type) -> Iterator[tuple[str, Any]]:
    """Public members of a class, without those of a class that has a section of its own."""
    seen: set[str] = set()
    for one in cls.__mro__:
        public = one.__name__ in pandastack.__all__ or one.__name__ == "Model"
        if not one.__module__.startswith("pandastack") or (one is not cls and public):
            continue
        for name, member in vars(one).items():
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, member


def describe_class(name: str, cls: type) -> Iterator[str]:
    """A class: what it is, its fields, its properties, its methods."""
    yield f"\n### {name}\n"
    base = cls.__mro__[1].__name__
    kind = f"A kind of `{base}`. " if issubclass(cls, BaseException) and base != "Exception" else ""
    yield f"{kind}{words(cls.__doc__)}\n"
    if dataclasses.is_dataclass(cls):
        yield "| Field | Type |\n|---|---|"
        for field in dataclasses.fields(cls):
            kind = str(field.type).replace("|", "\\|")
            yield f"| `{field.name}` | `{kind}` |"
        yield ""
    elif "__init__" in vars(cls) and not issubclass(cls, BaseException) and name in ("PandaStack", "Candidate"):
        yield f"```py\n{name}{signature(cls.__init__).replace(' -> None', '')}\n```\n"
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for member_name, member in shown(cls):
        if member_name in fields:
            continue
        if isinstance(member, property):
            yield f"- `{member_name}`: {words(member.__doc__)}"
    yield ""
    for member_name, member in shown(cls):
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if inspect.isfunction(function):
            yield f"#### `{name}.{member_name}`\n"
            yield f"```py\n{member_name}{signature(function)}\n```\n"
            yield f"{words(function.__doc__)}\n"


def group_of(name: str, member: Any) -> str:
    """The heading that a public name stands below."""
    if inspect.isfunction(member):
        return "Functions"
    if issubclass(member, BaseException):
        return "Exceptions"
    if dataclasses.is_dataclass(member):
        return "Answers"
    return "On servers that have them" if name in ("Apps", "Databases", "Functions", "Schedules") else "Client"


def page() -> str:
    """The whole page."""
    groups = ["Client", "Answers", "Exceptions", "Functions", "On servers that have them"]
    parts: dict[str, list[str]] = {group: [] for group in groups}
    aliases: list[str] = []
    for name in sorted(pandastack.__all__, key=lambda name: (name != "PandaStack", name != "Sandbox", name.lower())):
        member = getattr(pandastack, name)
        if name.startswith("Async") or "_async_" in name or not (inspect.isclass(member) or inspect.isfunction(member)):
            continue
        if member.__name__ != name:
            aliases.append(f"- `{name}` is `{member.__name__}`.")
        elif inspect.isclass(member):
            parts[group_of(name, member)] += describe_class(name, member)
        else:
            text = [f"\n### {name}\n", f"```py\n{name}{signature(member)}\n```\n", f"{words(member.__doc__)}\n"]
            parts[group_of(name, member)] += text
    text = HEAD
    for group, lines in parts.items():
        text += f"\n## {group}\n" + "\n".join(lines) + "\n"
    text += "\n## Names of earlier versions\n\n" + "\n".join(aliases) + "\n"
    return re.sub(r"\n{3,}", "\n\n", text)


if __name__ == "__main__":
    sys.stdout.write(page())
