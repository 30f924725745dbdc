"""The four families by each method on laptop data, over several seeds; docs/accuracy.md.

    python -m benchmarks.accuracy [--only NAME] [--method KIND] [--seeds N] [--folder DIR] [--jobs N]

Trains every spec of specs/laptop that `accuracy_page` names by each method that it compares, each on one stage in a
process of its own. Then it adds the figures of the run folders that exist to those published before. Finished runs of
the same spec are not repeated, so the command can be stopped and given again. With `--seeds 0` nothing is run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alray.config.known_code import sha256
from alray.config.loading.load import dump_spec, load_spec
from alray.core.run_folder.records import Summary
from alray.report.compare import ComparedRun
from benchmarks.accuracy_page import METHODS, NETWORKS
from benchmarks.runs import RESULTS, write_results

ROOT = Path(__file__).parents[1]
SPECS = ROOT / "specs" / "laptop"
FOLDER = ROOT / "runs" / "accuracy"


@dataclass(frozen=True)
class Trial:
    """One run: a spec, a method and a seed."""

    network: str
    method: str
    seed: int
    folder: Path
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.network}-{self.method}-{self.seed}"

    @property
    def run_dir(self) -> Path:
        return self.folder / self.name

    @property
    def spec(self) -> Path:
        return SPECS / f"{self.network}.yaml"

    @property
    def arguments(self) -> list[str]:
        """Overrides of the spec. A method's bare name replaces the whole section, so it goes first."""
        method = [f"method={self.method}"] if self.method != "associated_learning" else []
        return [*method, f"seed={self.seed}", "pipeline.stages=1", "run.checkpoint.keep=1", *self.overrides]

    @property
    def spec_sha256(self) -> str:
        """A hash of the keys that its spec and its overrides give, without those that have defaults."""
        return sha256(json.dumps(load_spec(self.spec, self.arguments).given, sort_keys=True).encode())

    @property
    def is_done(self) -> bool:
        """Whether its folder holds a finished run of this very spec."""
        summary, spec = self.run_dir / "summary.json", self.run_dir / "spec.yaml"
        if not summary.exists() or not spec.exists():
            return False
        if Summary.model_validate_json(summary.read_text(encoding="utf-8")).status != "finished":
            return False
        return spec.read_text(encoding="utf-8") == dump_spec(load_spec(self.spec, self.arguments).spec)

    def run(self) -> bool:
        """Run it unless it is done; what it prints goes to a file beside its folder. Whether it is done then."""
        if self.is_done:
            return True
        if self.run_dir.exists():
            shutil.rmtree(self.run_dir)
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "alray", "run", str(self.spec), *self.arguments]
        with (self.folder / f"{self.name}.log").open("w", encoding="utf-8") as log:
            subprocess.run(
                [*command, "--inline", "--output", str(self.run_dir)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                check=False,
            )
        told = "done" if self.is_done else f"not done, see {log.name}"
        print(f"{self.name}: {told}", flush=True)  # noqa: T201
        return self.is_done


def trials(
    folder: Path,
    networks: Iterable[str],
    seeds: int,
    overrides: Sequence[str] = (),
    methods: Sequence[str] = tuple(METHODS),
) -> list[Trial]:
    """All runs, the methods of one network and seed one after another."""
    return [
        Trial(network, method, seed, folder, tuple(overrides))
        for network in networks
        for seed in range(seeds)
        for method in methods
    ]


def figures(folder: Path, known: dict[str, Any] | None = None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Accuracies of the finished runs below `folder`, by network, method and seed, added to those `known` before. A run
    of another spec than that of its trial is left out, and so is a known figure that was measured with another one.
    Figures that do not say with which stay.

    They are shares of 0..1 at the evaluation that validation chose, of the whole network and of the route of each
    depth.
    """
    found: dict[str, Any] = {}
    for network in NETWORKS:
        for method in METHODS:
            for seed, figure in (known or {}).get(network, {}).get(method, {}).items():
                trial = Trial(network, method, int(seed), folder, tuple(overrides))
                if figure.get("spec_sha256") in (None, trial.spec_sha256):
                    found.setdefault(network, {}).setdefault(method, {})[seed] = figure
            for run_dir in sorted(folder.glob(f"{network}-{method}-*/")):
                seed = run_dir.name.removeprefix(f"{network}-{method}-")
                if not seed.isdecimal():
                    continue
                trial = Trial(network, method, int(seed), folder, tuple(overrides))
                if not trial.is_done:
                    continue
                run = ComparedRun(run_dir)
                if run.chosen is None:
                    continue
                found.setdefault(network, {}).setdefault(method, {})[str(run.seed)] = {
                    "spec_sha256": trial.spec_sha256,
                    "step": run.chosen.step,
                    "validation": run.chosen.validation,
                    "test": run.chosen.test,
                    "test_per_depth": {str(entry.depth): entry.test for entry in run.chosen.per_depth},
                    "parameters": run.parameters,
                    "effective_parameters": run.effective_parameters,
                }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=NETWORKS, metavar="NAME", help="run this spec's runs alone")
    parser.add_argument("--method", action="append", choices=METHODS, metavar="KIND", help="run this method alone")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N - 1 (default 3)")
    parser.add_argument("--folder", type=Path, default=FOLDER, metavar="DIR", help="of the run folders")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time (default 2)")
    given = parser.parse_args()
    wanted = trials(given.folder, given.only or NETWORKS, given.seeds, methods=given.method or tuple(METHODS))
    with ThreadPoolExecutor(given.jobs) as pool:
        done = list(pool.map(Trial.run, wanted))
    known = json.loads((RESULTS / "accuracy.json").read_text(encoding="utf-8"))
    write_results("accuracy", figures(given.folder, known))
    if not all(done):
        raise SystemExit(f"{done.count(False)} of {len(done)} runs are not done")


if __name__ == "__main__":
    main()
