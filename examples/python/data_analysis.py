"""Data analysis: a CSV file goes in, a table and a plot come out.

pandas and matplotlib run in the template `code-interpreter`. What a cell shows comes back in the forms that
notebooks understand, so a table is there as text and as HTML, a plot as a PNG.

    # Here, in a virtual environment; until 0.11.0 is published, a plain `pip install pandastack` is an older client.
    pip install ../../sdk/python
    export PANDASTACK_API=http://127.0.0.1:8080 PANDASTACK_API_KEY=pds_…
    python data_analysis.py [SALES.csv] [OUTPUT_DIRECTORY]
"""

import base64
import sys
from pathlib import Path

from pandastack import Execution, PandaStack, Sandbox

LOAD = """
import pandas as pd
sales = pd.read_csv("sales.csv", parse_dates=["date"])
sales["revenue"] = sales.units * sales.price
len(sales)
"""

SUMMARISE = """
by_month = sales.groupby([sales.date.dt.strftime("%Y-%m").rename("month"), "product"]).revenue.sum().unstack()
by_month
"""

PLOT = """
import matplotlib.pyplot as plt
axes = by_month.plot.bar(stacked=True, figsize=(7, 4), ylabel="revenue", title="Revenue by month", rot=0)
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.tight_layout()
plt.show()
"""


def run(sandbox: Sandbox, code: str) -> Execution:
    """Runs a cell that must succeed."""
    ran = sandbox.run_code(code, timeout_seconds=120)
    if ran.error:
        raise SystemExit(ran.error)
    return ran


def main(data: Path, output: Path) -> None:
    """Analyses a file."""
    output.mkdir(parents=True, exist_ok=True)
    with (
        PandaStack() as client,
        client.sandboxes.create(template="code-interpreter", ttl_seconds=600) as sandbox,
    ):
        sandbox.files.upload(data, "sales.csv")
        print(f"{run(sandbox, LOAD).text} sales")

        table = run(sandbox, SUMMARISE)  # Goes on with what the cell before has defined.
        print(table.text)
        (output / "revenue.html").write_text(table.html)

        plot = run(sandbox, PLOT)
        (output / "revenue.png").write_bytes(base64.b64decode(plot.png))
    for name in ("revenue.html", "revenue.png"):
        print(f"wrote {output / name}, {(output / name).stat().st_size} bytes")


if __name__ == "__main__":
    given = [Path(one) for one in sys.argv[1:]] + [None, None]
    main(given[0] or Path(__file__).parent / "sales.csv", given[1] or Path("."))
