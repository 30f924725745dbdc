"""`alray.run`, `load_run`, `plan` and `compare`: the same as the commands, and what they give back."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import alray
from alray.api.calls import defaults_of_torch
from alray.cli.main import execute
from alray.config.loading.yaml_text import write_yaml
from alray.core.errors import CheckpointError, NonFiniteLoss, PlanError, RequestError, SpecError
from alray.core.run_folder.records import EvaluationRecord
from alray.runtime.stage.work.local_losses import LocalLosses


@pytest.mark.full
def test_a_dict_a_model_and_the_command_train_the_same_weights(tiny: dict[str, Any], ended: alray.Run) -> None:
    Path("x.yaml").write_text(
        write_yaml({**tiny, "data": {**tiny["data"], "shape": [1, 4, 4]}, "optimizer": {"lr": 1e-2}}), encoding="utf-8"
    )
    assert execute(["run", "x.yaml", "--inline", "--output", "command", "optimizer.lr=3e-4", "run.epochs=2"]) == 0
    of_command = alray.load_run("command")
    changes = {"optimizer.lr": 3e-4}
    of_dict = alray.run(tiny, changes, inline=True, progress=False)
    of_model = alray.run(ended.spec, changes, inline=True, progress=False)
    hashes = [run.summary.weights_sha256 for run in (of_command, of_dict, of_model)]
    assert hashes == [hashes[0]] * 3
    assert hashes[0] != ended.summary.weights_sha256
    assert of_dict.spec == of_model.spec
    assert of_dict.spec.optimizer.lr == 3e-4
    assert Path(of_dict.summary.run_dir).parent == Path("runs").resolve()


def test_records_are_rows(ended: alray.Run) -> None:
    steps = ended.records("step")
    assert list(steps["step"]) == list(range(1, 19))
    assert {"losses.0.associated", "losses.2.autoencoder", "lr", "samples"} <= set(steps.columns)
    evaluations = ended.records("evaluation")
    assert evaluations["per_depth.3.test"].iloc[-1] == evaluations["test"].iloc[-1] == ended.summary.accuracy.test
    assert ended.records("plan")["plan"].iloc[0]["partition"] == [1, 2]
    everything = ended.records()
    assert set(everything["kind"]) >= {"step", "stage", "evaluation", "checkpoint", "event", "plan"}
    assert len(everything[everything["kind"] == "step"]) == 18


def test_a_run_shows_its_page_inside_a_frame(ended: alray.Run) -> None:
    page = (ended.folder / "report.html").read_text(encoding="utf-8")
    shown = ended._repr_html_()
    assert shown is not None
    assert shown.startswith(f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts')


def test_a_plan_needs_no_run(tiny: dict[str, Any]) -> None:
    planned = alray.plan(tiny, {"pipeline.stages": 3}, progress=False)
    assert (planned.stages, planned.partition) == (3, (1, 1, 1))
    assert not Path("runs").exists()


def test_runs_are_compared(tiny: dict[str, Any], ended: alray.Run) -> None:
    other = alray.run(tiny, ["seed=7"], inline=True, progress=False)
    found = alray.compare([ended, other.folder])
    (row,) = found.table().to_dict("records")
    assert row["validation.runs"] == 2
    assert repr(found) == "<alray comparison of 1 group of runs>"
    assert found._repr_html_().startswith("<iframe srcdoc=")


def test_one_run_is_compared_too(ended: alray.Run) -> None:
    for one in (ended, str(ended.folder), ended.folder):
        assert len(alray.compare(one).table()) == 1


def test_an_unknown_choice_names_those_that_exist(ended: alray.Run) -> None:
    with pytest.raises(RequestError, match="did you mean `onnx`"):
        ended.export("onx")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"`evaluation`.*did you mean `step`"):
        ended.records("steps")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overrides", "kind", "text"),
    [
        ({"optimizer.lrr": 1.0}, SpecError, "overrides: optimizer.lrr: unknown key; did you mean `lr`?"),
        (["run.epochs=0"], SpecError, "overrides: run.epochs: "),
        ("run.epochs=0", SpecError, "overrides: run.epochs: "),
        ({"data.sauce": 3, "optimizer.lr": "x"}, SpecError, "overrides: data.sauce: unknown key; did you mean"),
    ],
)
def test_wrong_overrides(tiny: dict[str, Any], overrides: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        alray.run(tiny, overrides, inline=True, progress=False)
    assert text in str(caught.value)


def test_errors_of_a_spec_without_a_file_name_the_key(tiny: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"^nam: unknown key; did you mean `name`\?$"):
        alray.plan({**tiny, "nam": 3})


def test_a_problem_found_after_reading_has_its_place(tiny: dict[str, Any]) -> None:
    text = write_yaml({**tiny, "data": {**tiny["data"], "shape": [1, 4, 4]}, "resources": {"memory_bytes": 1}})
    Path("x.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PlanError, match="no cut of 3 components into 2 stages fits") as caught:
        alray.plan("x.yaml", progress=False)
    (problem,) = caught.value.problems
    line = text.splitlines().index("pipeline:") + 1
    assert (problem.file, problem.line, problem.key) == ("x.yaml", line, "pipeline.partition")


def test_a_notebook_shows_the_problems_alone(tiny: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        alray.run(tiny, inline=True, address="127.0.0.1:1", progress=False)
    (shown,) = caught.value._render_traceback_()
    assert shown.startswith("RequestError: address: ") and "inline=True" in shown


def test_a_run_that_fails_raises_and_names_its_folder(tiny: dict[str, Any]) -> None:
    with pytest.raises(NonFiniteLoss) as caught:
        alray.run(tiny, {"optimizer": {"kind": "sgd", "lr": 1e30}}, inline=True, output="failed", progress=False)
    assert caught.value.__notes__ == [
        f'the run folder is {Path("failed").resolve()}; alray.load_run("{Path("failed").resolve()}") opens it'
    ]
    assert alray.load_run("failed").summary.status == "failed"


def test_a_run_in_another_thread_hears_no_signals(tiny: dict[str, Any], ended: alray.Run) -> None:
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(alray.run, tiny, inline=True, progress=False).result()
    assert run.summary.weights_sha256 == ended.summary.weights_sha256


def test_a_run_without_an_end_has_records_and_no_summary(tiny: dict[str, Any], ended: alray.Run) -> None:
    Path("going").mkdir()
    for name in ("spec.yaml", "records.jsonl", "plan.json"):
        Path("going", name).write_bytes((ended.folder / name).read_bytes())
    run = alray.load_run("going")
    assert repr(run) == f"<alray run {Path('going').resolve()}: not ended>"
    scored = f"test accuracy {ended.summary.accuracy.test:.4f}"
    assert repr(ended) == f"<alray run {ended.folder}: finished, 18 mini-batches, {scored}>"
    assert len(run.records("evaluation")) == 2
    assert run._repr_html_() is None
    with pytest.raises(CheckpointError, match="the run has no summary: it is still running, or it was killed"):
        assert run.summary


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="this is not a run folder"):
        alray.load_run(tmp_path)


def test_one_picture_or_several_are_classified(ended: alray.Run, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    Image.new("L", (4, 4), 128).save(picture)
    several = ended.predict([picture, str(picture)])
    assert len(several) == 2
    assert ended.predict(picture) == ended.predict(str(picture)) == several[:1]


def test_the_weights_are_chosen_once_and_read_once(
    ended: alray.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture, best = tmp_path / "a.png", ended.summary.best
    Image.new("L", (4, 4), 128).save(picture)
    trained = ended.trained(best=True)
    assert trained.evaluate(depth=3).scores[0].validation == best.validation
    assert (trained.weights.step, trained.weights.which) == (best.step, "best")
    predicted = trained.predict(picture)
    monkeypatch.setattr("alray.inference.network.load_component", None)
    assert predicted == trained.predict([picture], depth=3)
    assert trained.evaluate(depth=3).scores[0].validation == best.validation
    with pytest.raises(RequestError, match="there is no checkpoint after 5 mini-batches"):
        assert ended.trained(step=5).weights


def test_what_a_trained_network_computes_leaves_the_process_as_it_was(
    ended: alray.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[tuple[int, int]] = []
    infer = LocalLosses.infer_up

    def infer_up(*arguments: Any) -> Any:
        inside.append((torch.get_num_threads(), torch.get_deterministic_debug_mode()))
        torch.rand(1)  # as a block of the user may
        return infer(*arguments)

    monkeypatch.setattr(LocalLosses, "infer_up", infer_up)
    before = torch.get_num_threads(), torch.default_generator.get_state()
    torch.set_num_threads(2)
    try:
        ended.evaluate()
        assert set(inside) == {(ended.spec.resources.threads, 2)} != {(2, 0)}
        assert (torch.get_num_threads(), torch.get_deterministic_debug_mode()) == (2, 0)
        assert torch.default_generator.get_state().equal(before[1])
    finally:
        torch.set_num_threads(before[0])


def test_threads_that_use_a_trained_network_at_once_compute_as_the_run_did(
    ended: alray.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share torch's settings, which each of them changes and puts back."""
    inside: list[int] = []
    infer = LocalLosses.infer_up

    def infer_up(*arguments: Any) -> Any:
        time.sleep(0.02)
        inside.append(torch.get_deterministic_debug_mode())
        return infer(*arguments)

    monkeypatch.setattr(LocalLosses, "infer_up", infer_up)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda trained: trained.evaluate(), [ended.trained() for _ in range(3)]))
    assert set(inside) == {2} and torch.get_deterministic_debug_mode() == 0


def test_evaluations_of_another_thread_change_no_weight_of_a_run(tiny: dict[str, Any], ended: alray.Run) -> None:
    """They take turns with its stages, which have the same generators and the same settings of torch."""
    part = {"block": "mlp", "widths": [8], "dropout": 0.5}
    spec = {**tiny, "model": {"components": [part] * 3}, "run": {"epochs": 5}}
    alone = alray.run(spec, inline=True, progress=False)
    trained, over, evaluated = ended.trained(), threading.Event(), 0
    trained.evaluate()

    def evaluate() -> None:
        nonlocal evaluated
        while not over.is_set():
            trained.evaluate()
            evaluated += 1

    with ThreadPoolExecutor(1) as threads:
        evaluating = threads.submit(evaluate)
        try:
            beside = alray.run(spec, inline=True, progress=False)
        finally:
            over.set()
        evaluating.result()
    assert evaluated > 3 and beside.summary.weights_sha256 == alone.summary.weights_sha256
    assert torch.get_deterministic_debug_mode() == 0


def test_calls_of_threads_that_overlap_give_the_number_type_of_the_program_back() -> None:
    with _double(), ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        first, second = defaults_of_torch(), defaults_of_torch()
        one.submit(first.__enter__).result()
        other.submit(second.__enter__).result()
        one.submit(first.__exit__, None, None, None).result()
        assert torch.get_default_dtype() == torch.float32
        other.submit(second.__exit__, None, None, None).result()
        assert torch.get_default_dtype() == torch.float64


@contextmanager
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "of_program",
    [_double, partial(torch.device, "meta"), torch.no_grad],
    ids=["another type", "another device", "without gradients"],
)
def test_defaults_of_torch_that_a_program_has_set_change_no_weight(
    tiny: dict[str, Any], ended: alray.Run, of_program: Callable[[], AbstractContextManager[object]]
) -> None:
    def defaults() -> tuple[object, ...]:
        return torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.zeros(1).dtype

    with of_program():
        before = defaults()
        run = alray.run(tiny, {"pipeline.costs": None}, inline=True, progress=False)
        assert run.evaluate().scores[-1].test == ended.summary.accuracy.test
        assert defaults() == before
    assert run.summary.weights_sha256 == ended.summary.weights_sha256


def test_evaluations_are_records(ended: alray.Run) -> None:
    assert set(ended.records("evaluation").columns) >= set(EvaluationRecord.model_fields) - {"per_depth", "further"}
