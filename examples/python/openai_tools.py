"""An agent that writes and runs code: the `openai` SDK, tools in a sandbox, words shown while they arrive.

The model asks for tools, they run in a virtual machine of its own, what came of it is sent back, until the model is done.
It uses Chat Completions, which many other services speak too: `OPENAI_BASE_URL` says where.

    # Here, in a virtual environment; until 0.11.0 is published, a plain `pip install pandastack` is an older client.
    pip install ../../sdk/python openai
    export PANDASTACK_API=http://127.0.0.1:8080 PANDASTACK_API_KEY=pds_… OPENAI_API_KEY=…
    python openai_tools.py "How many primes are there below 5000?"
"""

import json
import os
import sys

from openai import OpenAI
from pandastack import PandastackError, PandaStack, Sandbox, SandboxTimeout

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5.5")
TEMPLATE = os.environ.get("PANDASTACK_TEMPLATE", "code-interpreter")
TURNS_MAX = 20

SYSTEM = "You have a Linux machine of your own. Use it to find out instead of guessing, and check your results."


def tool(name: str, description: str, *parameters: str) -> dict:
    """Describes a tool whose parameters are all texts."""
    schema = {
        "type": "object",
        "properties": {one: {"type": "string"} for one in parameters},
        "required": list(parameters),
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "strict": True, "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = [
    tool("run_python", "Runs Python code. Variables stay from call to call. The value of the last line is shown.", "code"),
    tool("run_command", "Runs a line of shell, as root. Shows its output and exit code.", "command"),
    tool("write_file", "Writes a text file. A relative path begins in the home directory.", "path", "content"),
]


def use_tool(sandbox: Sandbox, name: str, given: dict) -> str:
    """Runs a tool in the sandbox; what the model is told about it."""
    if name == "run_python":
        ran = sandbox.run_code(given["code"], timeout_seconds=120)
        return ran.stdout + ran.stderr + (ran.error or ran.text or "") or "(no output)"
    if name == "run_command":
        done = sandbox.exec(given["command"], timeout_seconds=120)
        return f"{done.stdout}{done.stderr}(exit code {done.exit_code})"
    if name == "write_file":
        written = sandbox.files.write(given["path"], given["content"])
        return f"wrote {written.bytes} bytes to {written.path}"
    raise ValueError(f"there is no tool {name}")


def answer(sandbox: Sandbox, call) -> dict:
    """The result of a call as the model expects it. That something went wrong is a result too."""
    try:
        text = use_tool(sandbox, call.function.name, json.loads(call.function.arguments))
    except SandboxTimeout as error:
        text = f"{error.stdout}{error.stderr}({error.message})"  # What it wrote until then says where it hangs.
    except (PandastackError, KeyError, ValueError) as error:
        text = f"{type(error).__name__}: {error}"
    print(f"→ {call.function.name} {call.function.arguments}\n← {text}")
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def sent(call) -> dict:
    """A call as it is sent back: without what the SDK adds to it."""
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}


def ask(model: OpenAI, messages: list):
    """The model's next message. Its words are printed as they arrive."""
    with model.chat.completions.stream(model=MODEL, messages=messages, tools=TOOLS) as stream:
        for event in stream:
            if event.type == "content.delta":
                print(event.delta, end="", flush=True)
        print()
        return stream.get_final_completion().choices[0].message


def run(task: str) -> None:
    """Lets the model work on a task."""
    model = OpenAI()
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
    with (
        PandaStack() as client,
        client.sandboxes.create(template=TEMPLATE, ttl_seconds=600, metadata={"example": "openai"}) as sandbox,
    ):
        for _ in range(TURNS_MAX):
            said = ask(model, messages)
            if not said.tool_calls:
                return
            calls = [sent(call) for call in said.tool_calls]
            messages.append({"role": "assistant", "content": said.content, "tool_calls": calls})
            messages += [answer(sandbox, call) for call in said.tool_calls]
    raise SystemExit(f"not done after {TURNS_MAX} turns")


if __name__ == "__main__":
    run(" ".join(sys.argv[1:]) or "How many primes are there below 5000?")
