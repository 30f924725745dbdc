"""Put what benchmarks have measured among the published figures, and write the pages of docs that show them.

    python -m benchmarks.publish

A benchmark may have measured some of its cases: those replace the published ones, the others stay. Where a page cannot
be written nothing is published. The figures in README are written by hand: a test says which of them differ now.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import accuracy_page, all_reduce_page, gpu_page, intervals_page, models_page, schedules_page, tables
from benchmarks.runs import MEASURED, RESULTS

DOCS = Path(__file__).parents[1] / "docs"
Figures = dict[str, Any]
PUBLISHED = {
    *tables.SECTIONS,
    *schedules_page.SECTIONS,
    "accuracy",
    "all_reduce",
    "alpha",
    "coverage",
    "exported",
    "gpu",
    "huggingface",
    "models",
    "noise_scale",
}
"""The results that a page shows, or `benchmarks.crossover` reads."""


def by_name(old: Figures, new: Figures) -> Figures:
    """Of results that have their cases by name."""
    return {**old, **new}


def by_keys(*keys: str) -> Callable[[list[Figures], list[Figures]], list[Figures]]:
    """Of results that are a list of cases, each known by these keys."""

    def merged(old: list[Figures], new: list[Figures]) -> list[Figures]:
        return list({tuple(each[key] for key in keys): each for each in (*old, *new)}.values())

    return merged


def models(old: list[Figures], new: list[Figures]) -> list[Figures]:
    """Of all models, those that were listed and not tried yet replace none that was tried."""
    published = {each["from"] for each in old}
    return by_keys("from")(old, [each for each in new if models_page.was_tried(each) or each["from"] not in published])


def gpu(old: Figures, new: Figures) -> Figures:
    """Of rows of one GPU: one that was published before gets a further session. Raises SystemExit where rows of another
    GPU, or by another torch, would stay beside them."""
    keys = ("network", "precision", "way")
    known = {tuple(row[key] for key in keys) for row in old["rows"]}
    rows = [*old["rows"], *(row for row in new["rows"] if tuple(row[key] for key in keys) not in known)]
    if all(old[key] == new[key] for key in ("device", "torch")):
        return {**new, "rows": [*map(partial(in_session, new["rows"], keys), rows)]}
    if len(rows) > len(new["rows"]):
        raise SystemExit(
            f"gpu.json has some networks on {new['device']} with torch {new['torch']}, and those published are of "
            f"{old['device']} with {old['torch']}: measure all of them"
        )
    return new


def in_session(measured: list[Figures], keys: tuple[str, ...], row: Figures) -> Figures:
    """A row with the session in which its way was measured again, if it was."""
    further = [
        {key: each[key] for key in ("step_s", "predicted_s", "weights_sha256")}
        for each in measured
        if all(each[key] == row[key] for key in keys) and each["step_s"] != row["step_s"]
    ]
    return {**row, "again": [*row["again"], *(each for each in further if each not in row["again"])]}


MERGED: dict[str, Callable[[Any, Any], Any]] = {
    "engines": by_name,
    "split_backward": by_name,
    "recomputation": by_name,
    "predictions": by_name,
    "huggingface": by_name,
    "exported": by_keys("network", "method"),
    "models": models,
    "gpu": gpu,
}
"""The published figures with those just measured, of the benchmarks that may measure a part."""


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def pages(results: Path) -> dict[str, str]:
    """The pages of these figures, by the names of their files."""
    return {
        "benchmarks.md": tables.page(results),
        "schedules.md": schedules_page.page(results),
        "accuracy.md": accuracy_page.page(read(results, "accuracy")),
        "all_reduce.md": all_reduce_page.page(read(results, "all_reduce")),
        "gpu_measured.md": gpu_page.page(read(results, "gpu")),
        "intervals.md": intervals_page.page(read(results, "coverage"), read(results, "noise_scale")),
        "models.md": models_page.page(
            read(results, "models"), read(results, "exported"), list(read(results, "huggingface").values())
        ),
    }


def merge(into: Path) -> list[str]:
    """Put what was measured into a folder of published figures. Returns the names of the files that this wrote."""
    written = []
    for file in sorted(MEASURED.glob("*.json")):
        name, goal = file.stem, into / file.name
        if name not in PUBLISHED:
            print(f"not published, since no page shows it: {file.name}")  # noqa: T201
            continue
        if name in MERGED and goal.exists():
            value = MERGED[name](read(into, name), read(MEASURED, name))
            goal.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        else:
            shutil.copy(file, goal)
        written.append(file.name)
    return written


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder)
        shutil.copytree(RESULTS, results, dirs_exist_ok=True)
        written = merge(results)
        texts = pages(results)
        for name in written:
            shutil.copy(results / name, RESULTS)
            print(f"published: {name}")  # noqa: T201
    for name, text in texts.items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
