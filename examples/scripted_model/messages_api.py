"""Anthropic's Messages API: requests are read and checked, answers are written, whole or as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from script import Call, Conversation, Refused, Turn


def check_headers(headers: dict[str, str]) -> None:
    """Refuses what has no key or no version."""
    if not headers.get("x-api-key") and not headers.get("authorization"):
        raise Refused("x-api-key header is required")
    if not headers.get("anthropic-version"):
        raise Refused("anthropic-version: header is required")


def read(request: dict[str, Any]) -> Conversation:
    """The conversation in a request."""
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise Refused("model: field required")
    if not isinstance(request.get("max_tokens"), int) or request["max_tokens"] < 1:
        raise Refused("max_tokens: must be a number of at least 1")
    conversation = Conversation()
    for tool in request.get("tools") or []:
        conversation.declare(tool.get("name"), tool.get("input_schema"))
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or messages[0].get("role") != "user":
        raise Refused("messages: the first one must be from the user")
    for message in messages:
        blocks = message.get("content")
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not isinstance(blocks, list) or not blocks:
            raise Refused(f"messages: one has no content: {message}")
        if message.get("role") == "assistant":
            conversation.check_answered()
            calls = [Call(one["id"], one["name"], one["input"]) for one in blocks if one.get("type") == "tool_use"]
            conversation.turns.append((calls, {}))
        elif message.get("role") == "user":
            for place, block in enumerate(blocks):
                if block.get("type") == "tool_result":
                    if any(earlier.get("type") != "tool_result" for earlier in blocks[:place]):
                        raise Refused("messages: results of tools come before everything else")
                    conversation.answer(block.get("tool_use_id"), _text(block.get("content", "")))
        else:
            raise Refused(f"messages: unexpected role {message.get('role')!r}")
    conversation.check_answered()
    if messages[-1]["role"] != "user":
        raise Refused("messages: the last one must be from the user")
    return conversation


def whole(turn: Turn, model: str) -> dict[str, Any]:
    """An answer."""
    content: list[dict[str, Any]] = [{"type": "text", "text": turn.say}] if turn.say else []
    content += [{"type": "tool_use", "id": call.id, "name": call.tool, "input": call.input} for call in turn.calls]
    return {**_message(turn, model), "content": content}


def stream(turn: Turn, model: str) -> Iterator[str]:
    """The same as events."""
    stop = {"stop_reason": "tool_use" if turn.calls else "end_turn", "stop_sequence": None}
    started = {**_message(turn, model), "content": [], "stop_reason": None}
    yield _event("message_start", message=started)
    yield _event("ping")
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if turn.say:
        pieces = [{"type": "text_delta", "text": piece} for piece in in_pieces(turn.say)]
        blocks.append(({"type": "text", "text": ""}, pieces))
    for call in turn.calls:
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in in_pieces(json.dumps(call.input))]
        blocks.append(({"type": "tool_use", "id": call.id, "name": call.tool, "input": {}}, pieces))
    for index, (block, pieces) in enumerate(blocks):
        yield _event("content_block_start", index=index, content_block=block)
        for piece in pieces:
            yield _event("content_block_delta", index=index, delta=piece)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=stop, usage={"output_tokens": _OUTPUT_TOKENS})
    yield _event("message_stop")


def error(message: str) -> dict[str, Any]:
    """How the service says that it refuses."""
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


def in_pieces(text: str, size: int = 12) -> list[str]:
    """Cuts a text, as models do."""
    return [text[start : start + size] for start in range(0, len(text), size)]


#: Not counted here.
_INPUT_TOKENS, _OUTPUT_TOKENS = 100, 20


def _message(turn: Turn, model: str) -> dict[str, Any]:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": _INPUT_TOKENS, "output_tokens": _OUTPUT_TOKENS},
    }


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def _text(content: Any) -> str:
    """The text of a result: a string, or blocks."""
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text", "")) for block in content)
