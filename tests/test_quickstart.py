"""The spec a newcomer runs first: what it learns, and what it leaves in its run folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from alray import __version__
from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.core.run_folder.records import Summary, effective, read
from alray.planning.prediction.plan import Plan
from alray.runtime.stage.weights_hash import weights_sha256

pytestmark = pytest.mark.long

SPEC = Path(__file__).parents[1] / "specs" / "quickstart.yaml"
EPOCHS, DEPTHS = 4, 4
OF_EACH = 10
"""Mini-batches of an epoch of half the samples."""
STEPS = OF_EACH * EPOCHS
SHORT = [f"run.epochs={EPOCHS}", "data.train_fraction=0.5"]


def run_of(folder: Path, *overrides: str) -> Path:
    """The folder of a run in one process."""
    assert execute(["run", str(SPEC), *overrides, "--inline", "--output", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run of 4 of the 20 epochs, by half the samples: the first depths know most digits then."""
    return run_of(tmp_path_factory.mktemp("quickstart") / "run", *SHORT)


@pytest.mark.full
def test_all_epochs(tmp_path: Path) -> None:
    summary = json.loads((run_of(tmp_path / "run") / "summary.json").read_text(encoding="utf-8"))
    assert summary["steps"] == 400
    assert summary["accuracy"]["test"] >= 0.985
    assert summary["accuracy"]["train"] >= 0.999


@pytest.fixture(scope="module")
def summary(run_dir: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    return value


def test_it_learns(summary: dict[str, Any]) -> None:
    assert summary["status"] == "finished"
    for split in ("train", "validation", "test"):
        assert summary["accuracy_per_depth"][0][split] >= 0.6


def test_every_route_is_measured(summary: dict[str, Any]) -> None:
    depths = summary["accuracy_per_depth"]
    assert [entry["depth"] for entry in depths] == [1, 2, 3, 4]
    assert all(0 < entry[split] <= 1 for entry in depths for split in ("train", "validation", "test"))
    assert {split: depths[-1][split] for split in summary["accuracy"]} == summary["accuracy"]


def test_the_summary_is_complete(summary: dict[str, Any], run_dir: Path) -> None:
    assert set(summary) == {key.replace("scores", "accuracy") for key in Summary.model_fields}
    assert Summary.model_validate(summary).model_dump(mode="json") == summary
    empty = {key for key, value in summary.items() if value is None}
    assert empty == {"bubble", "predicted_bubble", "uncompressed_bytes"}, "stages take turns and send all"
    assert summary["peak_memory_bytes"] == [None, None]
    told = {key: summary[key] for key in ("version", "name", "method", "schedule", "engine", "stages", "replicas")}
    assert told == {
        "version": __version__,
        "name": "quickstart",
        "method": "associated_learning",
        "schedule": "streamed",
        "engine": "inline",
        "stages": 2,
        "replicas": 1,
    }
    assert sum(summary["partition"]) == DEPTHS and len(summary["partition"]) == 2
    assert (summary["steps"], summary["epochs"], summary["samples"]) == (STEPS, EPOCHS, STEPS * 64)
    assert (summary["seed"], summary["threads"], summary["failures"]) == (0, 1, [])
    assert summary["run_dir"] == str(run_dir)
    assert summary["report"] == str(run_dir / "report.html")
    assert summary["samples_per_s"] == pytest.approx(64 / summary["step_time_s"])
    assert summary["predicted_step_time_s"] > 0 and summary["duration_s"] > 0
    assert set(summary["bytes_sent"]) == {"0->1", "1->0"} and summary["bytes_sent"]["0->1"] > 0


def test_the_best_was_chosen_on_validation(summary: dict[str, Any], run_dir: Path) -> None:
    evaluations = [record for record in effective(read(run_dir / "records.jsonl")) if record.kind == "evaluation"]
    assert len(evaluations) == EPOCHS
    best = max(evaluations, key=lambda record: record.validation)
    found = {"step": best.step, "validation": best.validation, "test": best.test}
    assert summary["best"] == {**found, "checkpoint": f"checkpoints/step-{best.step:08d}"}
    assert (run_dir / summary["best"]["checkpoint"] / "manifest.json").is_file()


def test_the_run_folder_is_complete(summary: dict[str, Any], run_dir: Path) -> None:
    files = {path.relative_to(run_dir).as_posix() for path in run_dir.rglob("*") if path.is_file()}
    single = {"spec.yaml", "plan.json", "environment.json", "records.jsonl", "summary.json"}
    assert files >= single | {"report.html", "logs/stage-0.log"}
    assert any(name.startswith("tensorboard/events.") for name in files)
    for step in (STEPS - 2 * OF_EACH, STEPS - OF_EACH, STEPS):
        folder = f"checkpoints/step-{step:08d}"
        parts = {f"{folder}/component-{index:02d}" for index in range(DEPTHS)}
        ends = (".safetensors", ".optimizer.pt")
        expected = {f"{folder}/manifest.json"} | {part + end for part in parts for end in ends}
        assert {name for name in files if name.startswith(folder)} == expected
    kept = {STEPS - 2 * OF_EACH, STEPS - OF_EACH, STEPS, summary["best"]["step"]}
    assert len(list((run_dir / "checkpoints").iterdir())) == len(kept), "`keep: 3`, and the best"
    assert summary["weights_sha256"] == weights_sha256(run_dir / "checkpoints" / f"step-{STEPS:08d}", DEPTHS)
    assert not [name for name in files if name.endswith(".partial")]


def test_what_the_run_folder_holds_can_be_read_back(summary: dict[str, Any], run_dir: Path) -> None:
    assert load_spec(run_dir / "spec.yaml").spec == load_spec(SPEC, SHORT).spec
    plan = Plan.from_json(json.loads((run_dir / "plan.json").read_text(encoding="utf-8")))
    assert list(plan.partition) == summary["partition"]
    assert plan.predicted_step_time_s == summary["predicted_step_time_s"]
    steps = [record for record in read(run_dir / "records.jsonl") if record.kind == "step"]
    assert [record.step for record in steps] == sorted({record.step for record in steps})
    assert set(steps[0].losses) == set(range(DEPTHS))
    environment = json.loads((run_dir / "environment.json").read_text(encoding="utf-8"))
    assert (environment["alray"], environment["engine"]) == (__version__, "inline")


def test_the_report_is_one_file_that_needs_no_network(run_dir: Path) -> None:
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    html = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    links = set(re.findall(r"""(?:src|href|srcset|action)\s*=\s*["']([^"']+)""", html))
    assert not [link for link in links if not link.startswith(("#", "data:")) and not (run_dir / link).is_file()]
    assert {"records.jsonl", "logs/stage-0.log"} <= links
    assert not re.findall(r"@import|url\((?!#|data:)|<(?:link|iframe|object|embed)\b", html)
    schema = "https://vega.github.io/schema/vega-lite/v6.json"
    assert set(re.findall(r"https?://[^\s\"'<)]+", html)) <= {schema}
    assert "spec" in page and "given" in json.loads((run_dir / "environment.json").read_text(encoding="utf-8"))
