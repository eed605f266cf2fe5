"""An agent that writes and runs code: Claude with the `anthropic` SDK, its tools in a sandbox.

The model asks for tools, they run in a virtual machine of its own, what came of it is sent back, until the model is done.
Whatever it does there, your machine is not touched; at the end the sandbox is deleted.

    # Here, in a virtual environment; until 0.11.0 is published, a plain `pip install pandastack` is an older client.
    pip install ../../sdk/python anthropic
    export PANDASTACK_API=http://127.0.0.1:8080 PANDASTACK_API_KEY=pds_… ANTHROPIC_API_KEY=…
    python anthropic_tools.py "How many primes are there below 5000?"
"""

import os
import sys

import anthropic
from pandastack import PandastackError, PandaStack, Sandbox, SandboxTimeout

MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-opus-5-5")
TEMPLATE = os.environ.get("PANDASTACK_TEMPLATE", "code-interpreter")
TURNS_MAX = 20

SYSTEM = "You have a Linux machine of your own. Use it to find out instead of guessing, and check your results."
TOOLS = [
    {
        "name": "run_python",
        "description": "Runs Python code. Variables and imports stay from call to call. The value of the last line is shown.",
        "input_schema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
    },
    {
        "name": "run_command",
        "description": "Runs a line of shell, as root. Shows its output and exit code.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
    {
        "name": "write_file",
        "description": "Writes a text file. A relative path begins in the home directory.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    },
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


def answer(sandbox: Sandbox, call: anthropic.types.ToolUseBlock) -> dict:
    """The result of a call as the model expects it. That something went wrong is a result too."""
    try:
        text, failed = use_tool(sandbox, call.name, call.input), False
    except SandboxTimeout as error:
        text, failed = f"{error.stdout}{error.stderr}({error.message})", True  # What it wrote until then says where it hangs.
    except (PandastackError, KeyError, ValueError) as error:
        text, failed = f"{type(error).__name__}: {error}", True
    print(f"→ {call.name} {call.input}\n← {text}")
    return {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": failed}


def run(task: str) -> str:
    """Lets the model work on a task; its last words."""
    model = anthropic.Anthropic()
    messages = [{"role": "user", "content": task}]
    with (
        PandaStack() as client,
        client.sandboxes.create(template=TEMPLATE, ttl_seconds=600, metadata={"example": "anthropic"}) as sandbox,
    ):
        for _ in range(TURNS_MAX):
            said = model.messages.create(model=MODEL, max_tokens=4096, system=SYSTEM, tools=TOOLS, messages=messages)
            messages.append({"role": "assistant", "content": said.content})
            text = "".join(block.text for block in said.content if block.type == "text")
            calls = [block for block in said.content if block.type == "tool_use"]
            if not calls:
                return text
            print(text)
            messages.append({"role": "user", "content": [answer(sandbox, call) for call in calls]})
    raise SystemExit(f"not done after {TURNS_MAX} turns")


if __name__ == "__main__":
    print(run(" ".join(sys.argv[1:]) or "How many primes are there below 5000?"))
