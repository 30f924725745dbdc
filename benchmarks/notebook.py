"""Run examples/first_steps.ipynb, and keep what its cells show.

python -m benchmarks.notebook     half a minute
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import nbclient
import nbformat

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"
LARGE = 20_000
"""What has more letters is left out: the page of a run. Its text stays."""


def main() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    metadata = notebook.metadata.copy()
    with TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    notebook.metadata = metadata  # without the version of this Python
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the time of day
        for output in cell.get("outputs", ()):
            if "data" in output:
                output.data = {kind: text for kind, text in output.data.items() if len(text) <= LARGE}
    NOTEBOOK.write_text(nbformat.writes(notebook).replace(f"{folder}/", "") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
