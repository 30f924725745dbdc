"""Every spec that is committed loads, can be planned and simulated; every study loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from alray.config.loading.load import load_spec
from alray.config.study.load import is_study, load_study
from alray.config.user_code import UserCode
from alray.planning.prediction.predict import timeline_of
from alray.runtime.planner.planning import Planner

from .stand_ins import Overrides, on_stand_in

pytestmark = pytest.mark.stand_ins

ROOT = Path(__file__).parents[1]
FILES = sorted(file for folder in ("specs", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.yaml"))
NAMES = [file.relative_to(ROOT).as_posix() for file in FILES]
STUDIES = [name for name in NAMES if is_study(ROOT / name)]
SPECS = [name for name in NAMES if name not in STUDIES]
NUM_BATCHES = 8
PLANNED = {
    "specs/quickstart.yaml",
    "specs/baselines/resnet8_cifar10.yaml",
    "specs/laptop/transformer_docstrings.yaml",
    "specs/laptop/mlp_diabetes.yaml",
    "specs/laptop/mono_forward_digits.yaml",
    "specs/laptop/slow_link.yaml",
    "examples/own_schedule.yaml",
}
"""Pictures, text and tables, by local losses and by backpropagation, a slow link and a listed schedule. The others are
planned in `make test-all`."""


@pytest.mark.parametrize("name", SPECS)
def test_it_loads(name: str) -> None:
    assert load_spec(ROOT / name).spec.name


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in PLANNED else pytest.mark.full) for name in SPECS]
)
def test_it_is_planned_and_simulated(name: str, stand_ins: Mapping[str, Overrides], one_thread: None) -> None:
    loaded = on_stand_in(ROOT / name, stand_ins)
    without_data = name.startswith("specs/language/")  # of which there is no stand-in
    planner = Planner.open(loaded.spec, UserCode(loaded.file.parent), without_data=without_data)
    plan = planner.plan(planner.costs(probe=False))
    assert (plan.stages, plan.schedule) == (loaded.spec.pipeline.stages, loaded.spec.schedule)
    assert sum(plan.partition) == len(plan.costs.components) == loaded.spec.model.num_components
    timeline = timeline_of(plan, plan.partition, NUM_BATCHES)
    assert len(timeline.completed_s) == NUM_BATCHES
    assert timeline.step_time_s > 0
    assert plan.predicted_step_time_s >= plan.bound_s * (1 - 1e-9)


@pytest.mark.few
@pytest.mark.parametrize("name", STUDIES)
def test_every_point_of_a_study_is_a_spec(name: str) -> None:
    study = load_study(ROOT / name)
    assert study.study.study == Path(name).stem
    assert len(study.points) == len(study.specs) >= 1


@pytest.mark.full
@pytest.mark.parametrize("name", STUDIES)
def test_the_first_trial_of_a_study_is_planned(name: str, stand_ins: Mapping[str, Overrides], one_thread: None) -> None:
    """Where a study asks for GPUs, it is planned for processors."""
    study = load_study(ROOT / name)
    overrides = [each for each in study.trials[0].overrides if not each.startswith("resources.per_stage=")]
    loaded = on_stand_in(study.study.base, stand_ins, *overrides)
    planner = Planner.open(loaded.spec, UserCode(loaded.file.parent))
    assert planner.plan(planner.costs(probe=False)).stages == study.specs[0].pipeline.stages
