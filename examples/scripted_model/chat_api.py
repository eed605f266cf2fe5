"""OpenAI's Chat Completions API: requests are read and checked, answers are written, whole or as a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from messages_api import in_pieces
from script import Call, Conversation, Refused, Turn


def check_headers(headers: dict[str, str]) -> None:
    """Refuses what has no key."""
    if not headers.get("authorization", "").startswith("Bearer "):
        raise Refused("You didn't provide an API key.")


def read(request: dict[str, Any]) -> Conversation:
    """The conversation in a request."""
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise Refused("you must provide a model parameter")
    conversation = Conversation()
    for tool in request.get("tools") or []:
        if tool.get("type") != "function":
            raise Refused(f"unexpected type of a tool: {tool.get('type')!r}")
        conversation.declare(tool["function"].get("name"), tool["function"].get("parameters"))
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("messages: there are none")
    for message in messages:
        role = message.get("role")
        if role == "tool":
            conversation.answer(message.get("tool_call_id"), _text(message.get("content")))
            continue
        conversation.check_answered()
        if role == "assistant":
            conversation.turns.append(([_call(one) for one in message.get("tool_calls") or []], {}))
        elif role not in ("system", "developer", "user"):
            raise Refused(f"messages: unexpected role {role!r}")
    conversation.check_answered()
    return conversation


def whole(turn: Turn, model: str) -> dict[str, Any]:
    """An answer."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.say or None, "refusal": None}
    if turn.calls:
        message["tool_calls"] = [_as_json(call) for call in turn.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(turn)}
    return {**_head("chat.completion", model), "choices": [choice], "usage": _USAGE}


def stream(turn: Turn, model: str, with_usage: bool) -> Iterator[str]:
    """The same as events."""

    def chunk(delta: dict[str, Any], reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _event({**_head("chat.completion.chunk", model), "choices": [choice]})

    yield chunk({"role": "assistant", "content": "" if turn.say else None})
    for piece in in_pieces(turn.say):
        yield chunk({"content": piece})
    for index, call in enumerate(turn.calls):
        opened = {"index": index, "id": call.id, "type": "function", "function": {"name": call.tool, "arguments": ""}}
        yield chunk({"tool_calls": [opened]})
        for piece in in_pieces(json.dumps(call.input)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _reason(turn))
    if with_usage:
        yield _event({**_head("chat.completion.chunk", model), "choices": [], "usage": _USAGE})
    yield "data: [DONE]\n\n"


def error(message: str) -> dict[str, Any]:
    """How the service says that it refuses."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


#: Not counted here.
_USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def _head(kind: str, model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-scripted", "object": kind, "created": int(time.time()), "model": model}


def _reason(turn: Turn) -> str:
    return "tool_calls" if turn.calls else "stop"


def _as_json(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": json.dumps(call.input)}}


def _call(given: dict[str, Any]) -> Call:
    function = given.get("function") or {}
    if given.get("type") != "function" or not isinstance(function.get("arguments"), str):
        raise Refused(f"messages: not a call of a tool: {given}")
    return Call(given["id"], function["name"], json.loads(function["arguments"]))


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _text(content: Any) -> str:
    """The text of a message: a string, or parts."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or [])
