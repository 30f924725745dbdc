"""Put what benchmarks have measured among the published figures, and write the pages of docs that show them.

    python -m benchmarks.publish

The figures in README are written by hand: a test says which of them differ now.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from benchmarks import accuracy_page, all_reduce_page, gpu_page, intervals_page, models_page, schedules_page, tables
from benchmarks.runs import MEASURED, RESULTS

DOCS = Path(__file__).parents[1] / "docs"


def pages(results: Path) -> dict[str, str]:
    """The pages of these figures, by the names of their files."""
    accuracy, all_reduce, coverage, models, exported, huggingface, gpu = (
        json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("accuracy", "all_reduce", "coverage", "models", "exported", "huggingface", "gpu")
    )
    return {
        "benchmarks.md": tables.page(results),
        "schedules.md": schedules_page.page(results),
        "accuracy.md": accuracy_page.page(accuracy),
        "all_reduce.md": all_reduce_page.page(all_reduce),
        "gpu_measured.md": gpu_page.page(gpu),
        "intervals.md": intervals_page.page(coverage),
        "models.md": models_page.page(models, exported, list(huggingface.values())),
    }


def main() -> None:
    for file in sorted(MEASURED.glob("*.json")):
        shutil.copy(file, RESULTS)
        print(f"published: {file.name}")  # noqa: T201
    for name, text in pages(RESULTS).items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
