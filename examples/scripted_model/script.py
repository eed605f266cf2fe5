"""A script: what the model says and calls, turn by turn, and what it expects to be told in between."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Refused(Exception):
    """A request that the real service would refuse, or that does not fit the script."""


@dataclass(frozen=True)
class Call:
    """A tool that the model calls."""

    id: str
    tool: str
    input: dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """What the model answers."""

    say: str
    calls: list[Call]
    #: What must be in the results of the turn before.
    expect: list[str]


@dataclass
class Conversation:
    """A request in the form that both services have in common."""

    #: JSON schema of the input, by the tool's name.
    tools: dict[str, Any] = field(default_factory=dict)
    #: For each answer that the model gave already: its calls, and the results by the call's id.
    turns: list[tuple[list[Call], dict[str, str]]] = field(default_factory=list)

    def declare(self, name: Any, schema: Any) -> None:
        """Adds a tool."""
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            raise Refused(f"{name!r} is no name of a tool")
        if name in self.tools:
            raise Refused(f"the tool {name} is declared twice")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise Refused(f"the tool {name} has no schema of type object")
        self.tools[name] = schema

    def answer(self, call_id: Any, text: str) -> None:
        """Adds the result of a call, which must be one of the last turn."""
        calls, results = self.turns[-1] if self.turns else ([], {})
        if call_id not in [call.id for call in calls]:
            raise Refused(f"a result answers {call_id!r}, which was not called just before")
        if call_id in results:
            raise Refused(f"two results answer {call_id!r}")
        results[call_id] = text

    def check_answered(self) -> None:
        """Refuses when a call of the last turn has no result."""
        calls, results = self.turns[-1] if self.turns else ([], {})
        missing = [call.id for call in calls if call.id not in results]
        if missing:
            raise Refused(f"no result answers {', '.join(missing)}")


class Script:
    """Turns, read from a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.turns = [_turn(number, given) for number, given in enumerate(json.loads(path.read_text(encoding="utf-8")))]
        #: Numbers of the turns that were asked for.
        self.used: set[int] = set()

    def next(self, conversation: Conversation) -> Turn:
        """What the model answers to a conversation: as many turns as it has are over."""
        number = len(conversation.turns)
        if number >= len(self.turns):
            raise Refused(f"the script ends after {len(self.turns)} answers")
        for turn, (calls, _) in zip(self.turns, conversation.turns):
            if calls != turn.calls:
                raise Refused(f"the history has {calls}, but the model called {turn.calls}")
        turn = self.turns[number]
        told = "\n".join(conversation.turns[-1][1].values()) if conversation.turns else ""
        for wanted in turn.expect:
            if wanted not in told:
                raise Refused(f"{wanted!r} is not in the results: {told}")
        for call in turn.calls:
            _check_input(call, conversation.tools)
        self.used.add(number)
        return turn


def _turn(number: int, given: dict[str, Any]) -> Turn:
    unknown = set(given) - {"say", "call", "expect"}
    if unknown:
        raise ValueError(f"turn {number} has {', '.join(sorted(unknown))}; known are say, call and expect")
    calls = [
        Call(f"call_{number}_{place}", one["tool"], one["input"]) for place, one in enumerate(given.get("call", []))
    ]
    return Turn(given.get("say", ""), calls, given.get("expect", []))


def _check_input(call: Call, tools: dict[str, Any]) -> None:
    if call.tool not in tools:
        raise Refused(f"the script calls {call.tool}, declared are: {', '.join(tools) or 'no tools'}")
    schema = tools[call.tool]
    missing = set(schema.get("required", [])) - set(call.input)
    unknown = set(call.input) - set(schema.get("properties", {}))
    if missing or unknown:
        raise Refused(f"the input {call.input} does not fit the schema of {call.tool}: {json.dumps(schema)}")
