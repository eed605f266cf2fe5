"""LangChain tools that run in a sandbox, bound to a model and used in a loop.

`sandbox_tools(sandbox)` gives tools that any LangChain model or agent takes. The loop below is the plain one; LangChain's
own agents do the same with `tools=sandbox_tools(sandbox)`.

    # Here, in a virtual environment; until 0.11.0 is published, a plain `pip install pandastack` is an older client.
    pip install ../../sdk/python langchain-anthropic
    export PANDASTACK_API=http://127.0.0.1:8080 PANDASTACK_API_KEY=pds_… ANTHROPIC_API_KEY=…
    python langchain_tool.py "How many primes are there below 5000?"
"""

import os
import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import BaseTool, tool
from pandastack import PandastackError, PandaStack, Sandbox

MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-opus-5-5")
TEMPLATE = os.environ.get("PANDASTACK_TEMPLATE", "code-interpreter")
TURNS_MAX = 20

SYSTEM = "You have a Linux machine of your own. Use it to find out instead of guessing, and check your results."


def sandbox_tools(sandbox: Sandbox) -> list[BaseTool]:
    """Tools for a model to use a sandbox. Their names, descriptions and parameters are those of the functions."""

    @tool
    def run_python(code: str) -> str:
        """Runs Python code. Variables and imports stay from call to call. The value of the last line is shown."""
        try:
            ran = sandbox.run_code(code, timeout_seconds=120)
        except PandastackError as error:
            return f"{type(error).__name__}: {error}"
        return ran.stdout + ran.stderr + (ran.error or ran.text or "") or "(no output)"

    @tool
    def run_command(command: str) -> str:
        """Runs a line of shell, as root. Shows its output and exit code."""
        try:
            done = sandbox.exec(command, timeout_seconds=120)
        except PandastackError as error:
            return f"{type(error).__name__}: {error}"
        return f"{done.stdout}{done.stderr}(exit code {done.exit_code})"

    @tool
    def write_file(path: str, content: str) -> str:
        """Writes a text file. A relative path begins in the home directory."""
        try:
            written = sandbox.files.write(path, content)
        except PandastackError as error:
            return f"{type(error).__name__}: {error}"
        return f"wrote {written.bytes} bytes to {written.path}"

    return [run_python, run_command, write_file]


def run(task: str) -> str:
    """Lets the model work on a task; its last words."""
    messages = [SystemMessage(SYSTEM), HumanMessage(task)]
    with (
        PandaStack() as client,
        client.sandboxes.create(template=TEMPLATE, ttl_seconds=600, metadata={"example": "langchain"}) as sandbox,
    ):
        tools = {one.name: one for one in sandbox_tools(sandbox)}
        model = ChatAnthropic(model=MODEL, max_tokens=4096).bind_tools(list(tools.values()))
        for _ in range(TURNS_MAX):
            said = model.invoke(messages)
            messages.append(said)
            if not said.tool_calls:
                return said.text
            print(said.text)
            for call in said.tool_calls:
                # Given a call, a tool answers with a message that names it.
                result = tools[call["name"]].invoke(call)
                print(f"→ {call['name']} {call['args']}\n← {result.content}")
                messages.append(result)
    raise SystemExit(f"not done after {TURNS_MAX} turns")


if __name__ == "__main__":
    print(run(" ".join(sys.argv[1:]) or "How many primes are there below 5000?"))
