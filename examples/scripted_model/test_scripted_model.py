"""What the scripted model answers, and what it refuses: `python3 -m unittest` in this directory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from script import Script
from server import ScriptedModel

HERE = Path(__file__).parent
TURNS = [
    {"say": "I look twice.", "call": [{"tool": "look", "input": {"at": "a"}}, {"tool": "look", "input": {"at": "b"}}]},
    {"expect": ["seen"], "say": "Done."},
]
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
ASK = {"role": "user", "content": "Look!"}


class Answers(unittest.TestCase):
    """Each test has a server of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "script.json"
        self.path.write_text(json.dumps(TURNS))
        self.server = ScriptedModel(("127.0.0.1", 0), Script(self.path))
        self.addCleanup(self.server.server_close)
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)

    def post(self, path: str, body: Any, headers: dict[str, str]) -> tuple[int, str]:
        request = urllib.request.Request(self.server.url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def messages(self, messages: list[Any], **more: Any) -> tuple[int, str]:
        tools = [{"name": "look", "input_schema": SCHEMA}]
        body = {"model": "m", "max_tokens": 10, "tools": tools, "messages": messages, **more}
        return self.post("/v1/messages", body, {"x-api-key": "k", "anthropic-version": "2023-06-01"})

    def chat(self, messages: list[Any], **more: Any) -> tuple[int, str]:
        tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
        body = {"model": "m", "tools": tools, "messages": messages, **more}
        return self.post("/v1/chat/completions", body, {"authorization": "Bearer k"})

    def refused(self, answer: tuple[int, str], why: str) -> None:
        self.assertEqual(answer[0], 400, answer)
        self.assertIn(why, json.loads(answer[1])["error"]["message"])

    def test_messages(self) -> None:
        first = json.loads(self.messages([ASK])[1])
        self.assertEqual(first["stop_reason"], "tool_use")
        said = {"role": "assistant", "content": first["content"]}
        self.assertEqual([block["type"] for block in said["content"]], ["text", "tool_use", "tool_use"])

        def results(*ids: str, text: str = "seen") -> dict[str, Any]:
            content = [{"type": "tool_result", "tool_use_id": one, "content": text} for one in ids]
            return {"role": "user", "content": content}

        both = [block["id"] for block in said["content"][1:]]
        last = json.loads(self.messages([ASK, said, results(*both)])[1])
        self.assertEqual((last["stop_reason"], last["content"]), ("end_turn", [{"type": "text", "text": "Done."}]))
        self.assertEqual(self.server.script.used, {0, 1})
        self.refused(self.messages([ASK, said, results(both[0])]), f"no result answers {both[1]}")
        self.refused(self.messages([ASK, said, results(*both, both[0])]), "two results")
        self.refused(self.messages([ASK, said, results(*both, "other")]), "was not called")
        self.refused(self.messages([ASK, said, results(*both, text="nothing")]), "'seen' is not in the results")
        said["content"][1]["input"] = {"at": "elsewhere"}
        self.refused(self.messages([ASK, said, results(*both)]), "but the model called")
        self.refused(self.messages([ASK], max_tokens=0), "max_tokens")
        self.refused(self.messages([ASK], tools=[]), "no tools")
        self.refused(self.messages([]), "the user")

    def test_chat(self) -> None:
        first = json.loads(self.chat([ASK])[1])["choices"][0]
        self.assertEqual(first["finish_reason"], "tool_calls")
        both = [call["id"] for call in first["message"]["tool_calls"]]
        results = [{"role": "tool", "tool_call_id": one, "content": "seen"} for one in both]
        last = json.loads(self.chat([ASK, first["message"], *results])[1])["choices"][0]
        self.assertEqual((last["finish_reason"], last["message"]["content"]), ("stop", "Done."))
        self.refused(self.chat([ASK, first["message"], results[0], ASK]), f"no result answers {both[1]}")
        self.refused(self.chat([ASK, results[0]]), "was not called")
        done = {"role": "assistant", "content": "Done."}
        self.refused(self.chat([ASK, first["message"], *results, done, ASK]), "ends after 2")
        self.refused(self.post("/v1/chat/completions", {}, {}), "API key")

    def test_streams_say_the_same(self) -> None:
        status, text = self.messages([ASK], stream=True)
        events = [json.loads(line[len("data: ") :]) for line in text.splitlines() if line.startswith("data: ")]
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        self.assertEqual((status, "".join(one.get("text", "") for one in deltas)), (200, "I look twice."))
        self.assertEqual("".join(one.get("partial_json", "") for one in deltas), '{"at": "a"}{"at": "b"}')
        status, text = self.chat([ASK], stream=True, stream_options={"include_usage": True})
        *chunks, end = [line[len("data: ") :] for line in text.splitlines() if line.startswith("data: ")]
        deltas = [one["delta"] for chunk in chunks for one in json.loads(chunk)["choices"]]
        self.assertEqual((end, "".join(one.get("content") or "" for one in deltas)), ("[DONE]", "I look twice."))
        self.assertEqual(json.loads(chunks[-1])["usage"]["total_tokens"], 120)

    def test_a_program_that_does_not_ask_for_everything_fails(self) -> None:
        command = [sys.executable, str(HERE / "server.py"), str(self.path), "--", sys.executable, "-c", "print('hello')"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
        self.assertEqual((ran.returncode, ran.stdout), (1, "hello\n"), ran.stderr)
        self.assertIn("2 of 2 answers were not asked for", ran.stderr)


if __name__ == "__main__":
    unittest.main()
