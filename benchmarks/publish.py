"""Put what benchmarks have measured among the published figures, and write the pages of docs that show them.

    python -m benchmarks.publish

A benchmark may have measured some of its cases: those replace the published ones, the others stay, and those that no
longer exist go. On the GPU that is published, the published figures stay and the new ones become a further session.
Where a page cannot be written nothing is published. The figures in README are written by hand: a test says which of
them differ now.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import (
    accuracy_page,
    all_reduce_page,
    engines,
    exported,
    gpu,
    gpu_page,
    huggingface,
    intervals_page,
    models_page,
    recomputation,
    schedules_page,
    tables,
)
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
    "links",
    "models",
    "workers",
}
"""The results that a page shows, or `benchmarks.crossover` reads."""


def by_name(names: Iterable[str]) -> Callable[[Figures, Figures], Figures]:
    """Of results that have their cases by name, those that exist."""
    exist = tuple(names)

    def merged(old: Figures, new: Figures) -> Figures:
        both = {**old, **new}
        return {name: both[name] for name in exist if name in both}

    return merged


def exported_cases(old: list[Figures], new: list[Figures]) -> list[Figures]:
    exist = {(case.network, case.method) for case in exported.cases()}
    both = {(each["network"], each["method"]): each for each in (*old, *new)}
    return [each for key, each in both.items() if key in exist]


def models(old: list[Figures], new: list[Figures]) -> list[Figures]:
    """A model is replaced by what was measured of it at least as far. Those that their library no longer lists are
    left out; `benchmarks.models` lists each library that is installed as a whole."""
    listed = {each["from"] for each in new}
    libraries = {library_of(each) for each in new}
    both = {each["from"]: each for each in old if each["from"] in listed or library_of(each) not in libraries}
    for each in new:
        if each["from"] not in both or measured_how_far(each) >= measured_how_far(both[each["from"]]):
            both[each["from"]] = each
    return list(both.values())


def library_of(model: Figures) -> str:
    return str(model["from"]).partition(":")[0]


def measured_how_far(model: Figures) -> int:
    """0: it is only listed. 1: it was looked at. 2: it was trained too, or cannot be."""
    if model.keys() & {"trained", "refused", "failed"}:
        return 2
    return 1 if models_page.was_tried(model) else 0


def of_gpu(old: Figures, new: Figures) -> Figures:
    """Of one GPU and torch, what was published before stays and gets a further session. Raises SystemExit where rows of
    another GPU, or by another torch, lack some of those that were published and can still be measured."""
    exist = list(product(gpu.NETWORKS, gpu.PRECISIONS, gpu.WAYS))
    before, found = ({place_of(row): row for row in each["rows"]} for each in (old, new))
    if any(old[key] != new[key] for key in ("device", "torch")):
        if any(place in before and place not in found for place in exist):
            raise SystemExit(
                f"{MEASURED / 'gpu.json'} has some ways on {new['device']} with torch {new['torch']}, and those "
                f"published are on {old['device']} with {old['torch']}: measure all of them, or delete this file"
            )
        return {**new, "rows": [found[place] for place in exist if place in found]}
    both = {**found, **{place: in_session(row, found.get(place)) for place, row in before.items()}}
    return {**old, "rows": [both[place] for place in exist if place in both]}


def place_of(row: Figures) -> tuple[str, str, str]:
    return row["network"], row["precision"], row["way"]


def in_session(row: Figures, measured: Figures | None) -> Figures:
    """A row with the session in which its way was measured again, if it was."""
    if measured is None or measured["step_s"] in (each["step_s"] for each in (row, *row["again"])):
        return row
    return {
        **row,
        "again": [*row["again"], {key: measured[key] for key in ("step_s", "predicted_s", "weights_sha256")}],
    }


MERGED: dict[str, Callable[[Any, Any], Any]] = {
    "engines": by_name(name for name, *_ in engines.cases()),
    "split_backward": by_name(name for name, *_ in engines.split_cases()),
    "recomputation": by_name(name for name, *_ in recomputation.cases()),
    "huggingface": by_name(huggingface.FAMILIES),
    "exported": exported_cases,
    "models": models,
    "gpu": of_gpu,
}
"""The published figures with those just measured, of the benchmarks that may measure a part."""


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def pages(results: Path) -> dict[str, str]:
    """The pages of these figures, by the names of their files."""
    return {
        "benchmarks.md": tables.page(results),
        "pipelines.md": schedules_page.page(results),
        "accuracy.md": accuracy_page.page(read(results, "accuracy")),
        "replicas.md": all_reduce_page.page(read(results, "all_reduce"), read(results, "workers")),
        "gpu_measured.md": gpu_page.page(read(results, "gpu")),
        "studies.md": intervals_page.page(read(results, "coverage")),
        "network.md": models_page.page(
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
