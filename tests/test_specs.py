"""Every spec that is committed loads, can be planned and simulated, and says how it is run; every study loads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from alray.config.study.load import is_study, load_study, read_study_file
from alray.config.user_code import UserCode
from alray.planning.prediction.predict import predicted_timeline
from alray.runtime.planner.planning import Planner

from .stand_ins import Overrides, on_stand_in

pytestmark = pytest.mark.stand_ins

ROOT = Path(__file__).parents[1]
FILES = sorted(file for folder in ("specs", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.yaml"))
NAMES = [file.relative_to(ROOT).as_posix() for file in FILES]
STUDIES = [name for name in NAMES if is_study(ROOT / name)]
SPECS = [name for name in NAMES if name not in STUDIES]
NUM_BATCHES = 8
REPEATED = (
    *(f"specs/al/{name}.yaml" for name in ("lstm_agnews", "lstm_dbpedia", "lstm_imdb", "resnet_tiny_imagenet")),
    *(f"specs/al/{name}.yaml" for name in ("transformer_dbpedia", "transformer_imdb", "vgg_tiny_imagenet")),
    *(
        f"specs/laptop/{name}.yaml"
        for name in ("resnet_digits", "resnet_fashion_mnist", "vgg_digits", "vgg_fashion_mnist")
    ),
    "specs/language/gpt_340m.yaml",
    "specs/al/transformer_sst2.yaml",
    "specs/al/resnet_beans.yaml",
    "specs/laptop/gpt1_docstrings.yaml",
    "specs/laptop/symba_digits.yaml",
    *(f"examples/files/{name}.yaml" for name in ("digit_rows", "stickers", "texts", "texts_json")),
    "benchmarks/balance.yaml",
    "benchmarks/eight.yaml",
    "benchmarks/uneven.yaml",
)
"""Specs whose network and method another spec has too, with other data or of another size."""


def test_there_are_specs() -> None:
    assert {"specs/quickstart.yaml", "benchmarks/balanced.yaml"} <= set(SPECS)
    assert "specs/studies/laptop/strong_scaling.yaml" in STUDIES


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in REPEATED else []) for name in SPECS]
)
def test_it_is_planned_and_simulated(name: str, stand_ins: Mapping[str, Overrides], one_thread: None) -> None:
    loaded = on_stand_in(ROOT / name, stand_ins)
    without_data = name.startswith("specs/language/")  # of which there is no stand-in
    planner = Planner.open(loaded.spec, UserCode(loaded.file.parent), without_data=without_data)
    plan = planner.plan(planner.costs(probe=False))
    assert (plan.stages, plan.schedule) == (loaded.spec.pipeline.stages, loaded.spec.schedule)
    assert sum(plan.partition) == len(plan.costs.components) == loaded.spec.model.num_components
    timeline = predicted_timeline(
        plan.schedule,
        plan.costs,
        plan.partition,
        plan.in_flight,
        num_batches=NUM_BATCHES,
        micro_batches=plan.micro_batches,
        virtual_stages=plan.virtual_stages,
        stage_speed=plan.stage_speed,
    )
    assert len(timeline.completed_s) == NUM_BATCHES
    assert timeline.step_time_s > 0
    assert plan.predicted_step_time_s >= plan.bound_s * (1 - 1e-9)


@pytest.mark.few
@pytest.mark.parametrize("name", STUDIES)
def test_every_point_of_a_study_is_a_spec(name: str) -> None:
    study = load_study(ROOT / name)
    assert study.study.study == Path(name).stem
    assert len(study.points) == len(study.specs) >= 1


@pytest.mark.parametrize("name", [name for name in STUDIES if name.startswith("specs/")])
def test_every_study_names_the_claims_that_it_examines(name: str) -> None:
    assert read_study_file(ROOT / name).verdicts


@pytest.mark.full
@pytest.mark.parametrize("name", STUDIES)
def test_the_first_trial_of_a_study_is_planned(name: str, stand_ins: Mapping[str, Overrides], one_thread: None) -> None:
    """Where a study asks for GPUs, it is planned for processors."""
    study = load_study(ROOT / name)
    overrides = [each for each in study.trials[0].overrides if not each.startswith("resources.per_stage=")]
    loaded = on_stand_in(study.study.base, stand_ins, *overrides)
    planner = Planner.open(loaded.spec, UserCode(loaded.file.parent))
    assert planner.plan(planner.costs(probe=False)).stages == study.specs[0].pipeline.stages


def test_every_size_of_a_study_asks_the_same_question() -> None:
    """A study for a laptop has the name of the one for a cluster. Sleeping components have one size, and so have the
    calibration of the searches of laptop size, the study of two small data sets, small language models, published
    accuracies of MLPs, optimizers, times of methods on two stages, and slow links, which are imitated on one machine.
    """
    laptop = {path.stem for path in (ROOT / "specs/studies/laptop").glob("*.yaml")}
    full = {path.stem for path in (ROOT / "specs/studies").glob("*.yaml")}
    assert full < laptop
    assert laptop - full == {
        "strong_scaling_sleeping",
        "weak_scaling_sleeping",
        "search_size",
        "batch_size_data",
        "slow_links",
        "language_methods",
        "slow_links_sleeping",
        "language_pipelines",
        "language_sleeping",
        "published_accuracies",
        "methods_on_stages",
        "optimizers",
    }


@pytest.mark.parametrize("name", NAMES)
def test_it_begins_with_what_it_shows_and_its_command(name: str) -> None:
    first, second, *_ = (ROOT / name).read_text(encoding="utf-8").split("\n")
    commands = "study" if name in STUDIES else "run|plan"
    assert re.fullmatch(rf"# [A-Z].+[.?] +alray ({commands}) {re.escape(name)}( \S+)*", first), first
    modeline = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", second)
    assert modeline is not None, second
    assert ((ROOT / name).parent / modeline[1]).resolve() == ROOT / "specs" / "alray.schema.json"
