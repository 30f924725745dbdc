"""Study specs: their points and trials, what is drawn, and what is told of a wrong one before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.config.loading.load import dump_spec
from alray.config.study.load import is_study, load_study
from alray.config.study.points import label_of
from alray.config.study.space import Distribution
from alray.core.errors import Problem, SpecError

STUDY = """\
study: scaling
base: base.yaml
set: {run.epochs: 2}
axes:
  pipeline.stages: [1, 2]
  variant:
    streamed: {}
    naive: {method: {kind: backpropagation}, pipeline.schedule: naive}
repeats: 2
"""
SEARCH = "search: {trials: 3, space: {optimizer.lr: {loguniform: [1e-4, 1]}, data.batch_size: {integers: [8, 32]}}}\n"


@pytest.fixture
def load(write: Callable[[str], Path], small: str) -> Callable[..., Any]:
    """Loads the text of a study, whose base is the small spec of this folder."""

    def load_text(text: str, *overrides: str) -> Any:
        path = write(text)
        Path("base.yaml").write_text(small, encoding="utf-8")
        return load_study(path, overrides)

    return load_text


@pytest.fixture
def told(load: Callable[..., Any]) -> Callable[..., list[str]]:
    """The places of a text's problems: the file unless it is the study, line and key, with the point in brackets."""

    def places(text: str, *overrides: str) -> list[str]:
        with pytest.raises(SpecError) as caught:
            load(text, *overrides)
        assert all(problem.hint for problem in caught.value.problems)
        return [place(problem) for problem in caught.value.problems]

    return places


def place(problem: Problem) -> str:
    file = Path(str(problem.file)).name
    _, bracket, point = problem.message.partition(" (at ")
    return f"{'' if file == 'x.yaml' else file + ':'}{problem.line} {problem.key}{bracket}{point}"


def test_a_section_as_a_value_is_named_by_its_kind() -> None:
    values = {"method": {"kind": "backpropagation"}, "optimizer": {"kind": "sgd", "momentum": 0.9, "nesterov": True}}
    assert label_of(values) == "method=backpropagation, optimizer=sgd (momentum 0.9, nesterov true)"


def test_every_combination_is_a_point_and_every_seed_a_trial(load: Callable[..., Any]) -> None:
    loaded = load(STUDY)
    assert [point.label for point in loaded.points] == [
        "pipeline.stages=1, variant=streamed",
        "pipeline.stages=1, variant=naive",
        "pipeline.stages=2, variant=streamed",
        "pipeline.stages=2, variant=naive",
    ]
    assert [(spec.pipeline.stages, spec.schedule, spec.run.epochs) for spec in loaded.specs] == [
        (1, "streamed", 2),
        (1, "naive", 2),
        (2, "streamed", 2),
        (2, "naive", 2),
    ]
    assert [(trial.number, trial.point.number, trial.seed) for trial in loaded.trials[:3]] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 0),
    ]
    assert loaded.trials[3].overrides == (
        "run.checkpoint=null",
        "run.epochs=2",
        "pipeline.stages=1",
        'method={"kind": "backpropagation"}',
        'pipeline.schedule="naive"',
        "seed=1",
    )


def test_the_points_of_a_session_run_in_turns_forwards_and_backwards(load: Callable[..., Any]) -> None:
    loaded = load(STUDY + "sessions: 3\n")
    assert [(each.session, each.seed, each.point.number) for each in loaded.trials] == [
        (session, seed, point)
        for session in range(3)
        for seed, points in ((0, (0, 1, 2, 3)), (1, (3, 2, 1, 0)))
        for point in points
    ]
    assert [each.number for each in loaded.trials] == list(range(24))
    assert loaded.trials[0].overrides == loaded.trials[8].overrides


def test_a_key_follows_an_axis(load: Callable[..., Any]) -> None:
    loaded = load(STUDY + "follow: {model.components.1.repeat: pipeline.stages}\n")
    assert [spec.model.num_components for spec in loaded.specs] == [2, 2, 3, 3]
    assert loaded.points[2].values == {"pipeline.stages": 2, "variant": "streamed"}


GRID = """\
study: grid
base: base.yaml
axes: {model.components.1.repeat: [1, 2, 3], pipeline.stages: [1, 2, 4]}
"""


def test_a_grid_without_its_impossible_points_is_a_study(load: Callable[..., Any]) -> None:
    """The network has one component and those that are repeated. Numbers stay without gaps: trials find their spec."""
    loaded = load(GRID + "impossible: skip\n")
    assert [tuple(point.values.values()) for point in loaded.points] == [
        (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (3, 4),
    ]  # fmt: skip
    assert [trial.point.number for trial in loaded.trials] == list(range(7))
    last = loaded.spec_of(loaded.trials[-1])
    assert (last.model.num_components, last.pipeline.stages) == (4, 4)
    assert [tuple(each.point.values.values()) for each in loaded.skipped] == [(1, 4), (2, 4)]
    assert all(each.reason.startswith("pipeline.stages: 4 stages, but the model has") for each in loaded.skipped)


def test_a_value_that_fits_at_no_point_is_a_mistake_also_where_points_are_skipped(
    told: Callable[..., list[str]],
) -> None:
    refused = "model.components.1.repeat={}, pipeline.stages={})"
    assert {each.partition(" (at ")[2] for each in told(GRID)} == {refused.format(1, 4), refused.format(2, 4)}
    too_many = told(GRID + "impossible: skip\n", "axes.pipeline.stages=[1,4,5]")
    assert {each.partition(" (at ")[2] for each in too_many} == {refused.format(count, 5) for count in (1, 2, 3)}
    assert [each.split()[1] for each in told(GRID + "impossible: skip\nset: {optimizer.lr: none}\n")] == [
        "set.optimizer.lr"
    ]


def test_what_is_wrong_at_every_point_makes_none_impossible(told: Callable[..., list[str]]) -> None:
    """That alone is told: the other points can still be left out."""
    one_replica = "set: {replicas.sync_batch_norm: true}\n"
    places = told(GRID + "impossible: skip\n" + one_replica)
    assert {each.split()[1] for each in places} == {"set.replicas.sync_batch_norm"}


def test_a_dumped_study_is_the_same_one(load: Callable[..., Any]) -> None:
    loaded = load(STUDY + SEARCH + "target: {metric: validation_error, below: 0.1}\n")
    Path("copy.yaml").write_text(dump_spec(loaded.study), encoding="utf-8")
    again = load_study("copy.yaml")
    assert again.study == loaded.study
    assert again.trials == loaded.trials
    assert again.specs == loaded.specs
    assert loaded.specs[0].run.stop_at.above == 0.9


def test_a_section_of_all_trials_stands_beside_a_target(load: Callable[..., Any]) -> None:
    loaded = load(study(set="{run: {epochs: 2}}", target="{metric: validation_error, below: 0.25}"))
    assert (loaded.specs[0].run.epochs, loaded.specs[0].run.stop_at.above) == (2, 0.75)


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ({}, [None, None]),
        ({"set": "{run: {epochs: 2}}"}, [None, None]),
        ({"set": "{run: {epochs: 2, checkpoint: {keep: 1}}}"}, [1, 1]),
        ({"axes": "{run: [{epochs: 1}, {epochs: 2, checkpoint: {keep: 1}}]}"}, [None, 1]),
        ({"set": "{run.checkpoint.keep: 1}", "axes": "{variant: {a: {run: {epochs: 2}}, b: {}}}"}, [3, 1]),
        ({"search": "{trials: 2, space: {run: {choice: [{epochs: 1}]}}}"}, [None, None]),
    ],
)
def test_trials_keep_checkpoints_only_where_the_study_says_so(
    load: Callable[..., Any], keys: dict[str, str], kept: list[int | None]
) -> None:
    loaded = load(study(**{"repeats": "2", **keys} if "axes" not in keys else keys))
    found = [loaded.spec_of(trial).run.checkpoint for trial in loaded.trials]
    assert [checkpoint and checkpoint.keep for checkpoint in found[:2]] == kept


def test_a_series_may_be_compared_with_the_only_other_one(load: Callable[..., Any]) -> None:
    claim = "{claim: a, figure: critical_batch_size, of: {seed: 1}, over: [{}]}"
    target = "{metric: validation_error, below: 0.25}"
    load(study("{data.batch_size: [8, 16], seed: [1, 2]}", target=target, verdicts=f"[{claim}]"))


def test_a_variant_may_have_a_target_of_its_own(load: Callable[..., Any]) -> None:
    study = "target: {metric: validation_error, below: 0.1, variants: {naive: 0.25}}\n"
    loaded = load(STUDY + study)
    assert {spec.run.stop_at.above for spec in loaded.specs} == {0.9, 0.75}


def test_the_bound_of_an_error_is_reached_at_this_error(load: Callable[..., Any]) -> None:
    loaded = load(study(target="{metric: validation_error, below: 0.18}"))
    assert loaded.specs[0].run.stop_at.above == 820 / 1000


def test_a_target_that_replaces_the_patience_of_the_base_says_so(load: Callable[..., Any]) -> None:
    target = study("{seed: [1, 2]}", target="{metric: validation_error, below: 0.25}")
    assert load(target).notes == ()
    Path("patient.yaml").write_text("base: base.yaml\nrun: {stop_at: {patience: 4}}\n", encoding="utf-8")
    assert ["patience of 4" in note for note in load(target.replace("base.yaml", "patient.yaml")).notes] == [True]


def test_keys_of_a_study_are_overridden(load: Callable[..., Any]) -> None:
    loaded = load(STUDY, "repeats=1", "set.run.epochs=3", "axes.pipeline.stages=[2]", "max_concurrent=1")
    assert [spec.run.epochs for spec in loaded.specs] == [3, 3]
    assert len(loaded.trials) == 2


def test_a_search_is_drawn_anew_at_every_point_and_is_the_same_at_every_start(load: Callable[..., Any]) -> None:
    trials = load(STUDY + SEARCH).trials
    assert trials == load(STUDY + SEARCH).trials
    assert len(trials) == 4 * 3 * 2
    rates = [trial.values["optimizer.lr"] for trial in trials]
    assert rates[::2] == rates[1::2]  # the seeds of one setting
    assert len(set(rates)) == 4 * 3
    more = load(STUDY + SEARCH.replace("trials: 3", "trials: 5")).trials
    assert [trial.values for trial in more if trial.index < 3] == [trial.values for trial in trials]


def test_few_settings_cover_the_space(load: Callable[..., Any]) -> None:
    search = "search: {trials: 16, space: {optimizer.lr: {loguniform: [1e-4, 1]}}}\n"
    trials = load("study: rates\nbase: base.yaml\n" + search).trials
    eighths = {int(8 * (1 + math.log10(trial.values["optimizer.lr"]) / 4)) for trial in trials}
    assert eighths == set(range(8))


def test_a_variant_has_keys_of_its_own_that_are_searched(load: Callable[..., Any]) -> None:
    text = """\
study: momenta
base: base.yaml
axes:
  variant:
    sgd: {optimizer: {kind: sgd, lr: 0.1}}
    momentum: {optimizer: {kind: sgd, lr: 0.1}}
search:
  trials: 2
  space: {optimizer.lr: {loguniform: [1e-4, 1]}}
  variants:
    momentum: {optimizer.lr: {loguniform: [1e-5, 1e-4]}, optimizer.momentum: {one_minus_loguniform: [0.5, 0.999]}}
"""
    plain, momentum = load(text).trials[::2]
    assert list(plain.values) == ["optimizer.lr"]
    assert list(momentum.values) == ["optimizer.lr", "optimizer.momentum"]
    assert momentum.values["optimizer.lr"] <= 1e-4
    assert momentum.overrides[-2].startswith("optimizer.momentum=0.")


@pytest.mark.parametrize(
    ("distribution", "values"),
    [
        ({"choice": ["a", "b"]}, ["a", "b", "b"]),
        ({"uniform": [2, 4]}, [2, 3, pytest.approx(4)]),
        ({"loguniform": [1e-4, 1.0]}, [pytest.approx(1e-4), pytest.approx(1e-2), pytest.approx(1.0)]),
        ({"one_minus_loguniform": [0.0, 0.99]}, [0.0, pytest.approx(0.9), pytest.approx(0.99)]),
        ({"integers": [1, 4]}, [1, 3, 4]),
    ],
)
def test_the_value_at_a_share_of_a_distribution(distribution: dict[str, Any], values: list[Any]) -> None:
    made = Distribution.model_validate(distribution)
    assert [made.at(share) for share in (0.0, 0.5, 1 - 1e-12)] == values


@pytest.mark.parametrize("kind", ["uniform", "loguniform", "one_minus_loguniform"])
def test_the_share_of_a_value_is_the_inverse(kind: str) -> None:
    made = Distribution.model_validate({kind: [0.1, 0.9]})
    assert [made.share(made.at(share)) for share in (0.0, 0.3, 0.9)] == pytest.approx([0.0, 0.3, 0.9])


def test_a_choice_has_no_shares_and_integers_have() -> None:
    assert Distribution.model_validate({"choice": [1, 2]}).share(1) is None
    assert [Distribution.model_validate({"integers": [1, 5]}).share(value) for value in (1, 3, 5)] == [0.0, 0.5, 1.0]


def study(axes: str = "{}", **keys: str) -> str:
    """A study of these axes. What is wrong with it begins in line 3."""
    lines = [f"{key}: {value}" for key, value in keys.items()]
    return "\n".join(["study: a", "base: base.yaml", *([] if axes == "{}" else [f"axes: {axes}"]), *lines]) + "\n"


def search(space: str, rest: str = "trials: 2") -> str:
    return study(search=f"{{{rest}, space: {{{space}}}}}")


@pytest.mark.few
@pytest.mark.parametrize(
    ("text", "places"),
    [
        # The study itself: values.
        (STUDY.replace("repeats: 2", "repeats: 0"), ["9 repeats"]),
        (STUDY.replace("repeats", "repeat"), ["9 repeat"]),
        (study("[1]"), ["3 axes"]),
        (study("{a..b: [1]}"), ["3 axes"]),
        (study("{optimizer.lr: [.nan]}"), ["3 axes.optimizer.lr"]),
        (study(search="{kind: optuna}"), ["3 search.trials", "3 search.space"]),
        (study(search="optuna"), ["3 search.trials", "3 search.space"]),
        (study(search="{kind: grid, trials: 2, space: {optimizer.lr: {choice: [1]}}}"), ["3 search.kind"]),
        (search(""), ["3 search.space"]),
        (search("optimizer.lr: {}"), ["3 search.space.optimizer.lr"]),
        (search("optimizer.lr: {choice: []}"), ["3 search.space.optimizer.lr.choice"]),
        (search("optimizer.lr: {loguniform: [0, 1]}"), ["3 search.space.optimizer.lr"]),
        (search("optimizer.lr: {uniform: [2, 1]}"), ["3 search.space.optimizer.lr"]),
        (search("optimizer.lr: {loguniformm: [1, 2]}"), ["3 search.space.optimizer.lr.loguniformm"]),
        (study(target="{metric: validation_error, above: 0.5}"), ["3 target"]),
        (study("{seed: []}", repeats="0", search="{trials: 5}"), ["4 repeats", "5 search.space"]),
        # The study itself: checks across its keys.
        (STUDY.replace("base.yaml", "nothing.yaml"), ["2 base"]),
        (study("{pipeline.stages: [1, 1]}"), ["3 axes.pipeline.stages[1]"]),
        (study("{pipeline.stages: 2, seed: []}"), ["3 axes.pipeline.stages", "3 axes.seed"]),
        (study("{pipeline.stages: }"), ["3 axes.pipeline.stages"]),
        (study("{variant: {}}"), ["3 axes.variant"]),
        (study("{variant: [a, b]}"), ["3 axes.variant"]),
        (study("{variant: {streamed: 3}}"), ["3 axes.variant.streamed"]),
        (study("{variant: {streamed: {a..b: 3}}}"), ["3 axes.variant.streamed.a..b"]),
        (study(f"{{seed: {list(range(102))}, optimizer.lr: {list(range(1, 102))}}}"), ["3 axes.seed"]),
        (study("{optimizer.lr: [1]}", repeats="200000"), ["4 repeats"]),
        (STUDY + "follow: {model.components.1.repeat: stages, pipeline.stages: variant}\n",
         ["10 follow.model.components.1.repeat", "10 follow.pipeline.stages", "10 follow.pipeline.stages"]),
        (study("{seed: [1, 2]}", repeats="2"), ["3 axes.seed"]),
        (study(target="{metric: validation_error, below: 0.5}", set="{run.stop_at: null}"), ["3 target"]),
        *((study(axes, target="{metric: validation_error, below: 0.5}", **keys), [at])
          for axes, keys, at in (
              ("{variant: {a: {run.stop_at.above: 0.9}, b: {}}}", {}, "4 target"),
              ("{seed: [1, 2]}", {"follow": "{run.stop_at.above: seed}"}, "4 target"),
              ("{run: [{epochs: 1}, {epochs: 2}]}", {}, "3 axes.run"),
              ("{variant: {a: {run: {epochs: 2}}, b: {}}}", {}, "3 axes.variant.a.run"),
              ("{}", {"set": "{run: {epochs: 2, stop_at: null}}"}, "3 target"),
          )),
        (STUDY + "search: {trials: 2, space: {pipeline.stages: {choice: [1, 2]}}}\n",
         ["10 search.space.pipeline.stages"]),
        (search("seed: {choice: [1]}"), ["3 search.space.seed"]),
        (study(search="{trials: 2, space: {optimizer.lr: {choice: [1]}}, variants: {naiv: {seed: {choice: [1]}}}}"),
         ["3 search.variants.naiv.seed", "3 search.variants.naiv"]),
        (study(target="{metric: validation_error, below: 0.5, variants: {naiv: 0.4}}"), ["3 target.variants.naiv"]),
        (study(target="{metric: validation_error, below: 0.5, variants: {naive: 4}}"), ["3 target"]),
        (study(trial_scheduler="{kind: asha, grace_samples: 100}"), ["3 trial_scheduler"]),
        (study("{seed: [1]}", verdicts="[{claim: a, figure: test, of: {seed: 3}, over: [{lr: 1}], above: 1}]"),
         ["4 verdicts[0].of.seed", "4 verdicts[0].over[0].lr"]),
        (study("{seed: []}", verdicts="[{claim: a, figure: test, of: {seed: 3}, above: 1}]"),
         ["3 axes.seed", "4 verdicts[0].of.seed"]),
        (study(verdicts="[{claim: a, figure: critical_batch_size, above: 1}]"), ["3 verdicts[0].figure"] * 2),
        (study(verdicts="[{claim: a, figure: largest_useful_batch_size, above: 1}]"), ["3 verdicts[0].figure"]),
        (study(verdicts="[{claim: a, figure: {steps: 1}, above: 1}]"), ["3 verdicts[0].figure"]),
        (study(target="{metric: validation_error, below: 0.5}", verdicts="[{claim: a, figure: growth_of_best_rate}]"),
         ["4 verdicts[0].figure"] * 2),
        (study("{seed: [1, 2]}", verdicts="[{claim: a, figure: critical_batch_size, minus: [{seed: 1}], above: 1}]"),
         ["4 verdicts[0]"]),
        (study(verdicts="[{claim: a, figure: test, above: 1, below: 2}, {claim: a, figure: best, below: 1}]"),
         ["3 verdicts[0]", "3 verdicts[1].figure"]),
        (study(verdicts="[{claim: a, figure: step_time_s, samples: 10, since: today, below: 1}]"),
         ["3 verdicts[0].since"]),
        (study(verdicts="[{claim: a, figure: step_time_s, samples: 10, below: 1}]"), ["3 verdicts[0]"]),
        (study(verdicts="[{claim: a, figure: test, quote: b}]"), ["3 verdicts[0]"]),
        (study("{seed: [1, 2]}", verdicts="[{claim: a, figure: test, of: {seed: 1}, than: {seed: 2}, above: 1}, "
               "{claim: a, figure: test, of: {seed: 1}, minus: [{seed: 1}], than: {seed: 3}, above: 1}]"),
         ["4 verdicts[0]"]),
        (study("{seed: [1, 2]}",
               verdicts="[{claim: a, figure: test, of: {seed: 1}, minus: [{seed: 2}], than: {seed: 3}, above: 1}]"),
         ["4 verdicts[0].than.seed"]),
        (study("{data.batch_size: [8, 16]}", target="{metric: validation_error, below: 0.5}",
               verdicts="[{claim: a, figure: critical_batch_size, of: {data.batch_size: 8}}]"),
         ["5 verdicts[0].of.data.batch_size"]),
        (study("{seed: [1, 2]}", target="{metric: validation_error, below: 0.5}",
               verdicts="[{claim: a, figure: critical_batch_size}]"),
         ["5 verdicts[0].figure"]),
        (study("{data.batch_size: [8, 16], seed: [1, 2], run.epochs: [1, 2]}",
               target="{metric: validation_error, below: 0.5}",
               verdicts="[{claim: a, figure: critical_batch_size, of: {seed: 1, run.epochs: 1}, over: [{seed: 2}]}]"),
         ["5 verdicts[0].over[0]"]),
        *((study(f"{{data.batch_size: [8, 16], seed: {seeds}}}", target="{metric: validation_error, below: 0.5}",
                 verdicts=f"[{{claim: a, figure: critical_batch_size, of: {{seed: 1}}, over: [{over}]}}]"), places)
          for seeds, over, places in (
              ("[1, 2, 3]", "{}", ["5 verdicts[0].over[0]"]),
              ("[1, 2]", "{seed: 2, data.batch_size: 8}", ["5 verdicts[0].over[0].data.batch_size"]),
          )),
        (study("{pipeline.stages: [1, 2]}", search="{trials: 2, space: {optimizer.lr: {choice: [1]}}}",
               target="{metric: validation_error, below: 0.5}",
               verdicts="[{claim: a, figure: steps_to_target, of: {pipeline.stages: 1}, "
               "minus: [{pipeline.stages: 2}], above: 1}]"),
         ["6 verdicts[0].minus"]),
        (study("{seed: [1, 2]}",
               verdicts="[{claim: a, figure: test, of: {seed: 1}, over: [{seed: 2}, {seed: 1}, {}]}, "
               "{claim: a, figure: test, over: [{seed: 1}]}]"),
         ["4 verdicts[0].over[1]"]),
        (study("{seed: [1, 2], run.epochs: [1, 2]}",
               verdicts="[{claim: a, figure: test, of: {seed: 1, run.epochs: 1}, "
               "minus: [{seed: 2, run.epochs: 1}], than: {run.epochs: 1}, above: 1}]"),
         ["4 verdicts[0].than"]),
        (study("{seed: [1, 2]}",
               verdicts="[{claim: a, figure: test, of: {}, minus: [{seed: 1}], than: {seed: 2}, above: 1}, "
               "{claim: b, figure: test, of: {seed: 1}, minus: [{}], than: {seed: 2}, above: 1}]"),
         ["4 verdicts[0]", "4 verdicts[1]"]),
        (study(verdicts="[{claim: a, figure: test, published: 1}]"), ["3 verdicts[0]"]),
        (search("optimizer.lr: {choice: [1]}") + "sessions: 3\n", ["4 sessions"]),
        (study(measures="times", verdicts="[{claim: a, figure: test, above: 1}]"), ["4 verdicts[0].figure"]),
        *((search(f"{key}: {{choice: [1]}}", "kind: optuna, trials: 2"), [f"3 search.space.{key}"])
          for key in ("pipeline", "replicas.count", "resources.per_stage", "resources")),
        # Its points.
        (STUDY.replace("[1, 2]", "[1, 3]"), ["5 axes.pipeline.stages[1]"]),
        (STUDY.replace("[1, 2]", "[1, x]").replace("  variant", "  optimizer.lrr: [1]\n  variant"),
         ["5 axes.pipeline.stages[1]", "6 axes.optimizer.lrr"]),
        (STUDY.replace(
            "schedule: naive", "schedule: 1f1b, pipeline.micro_batches: 1, pipeline.micro_batch_norm: accept"),
         ["8 axes.variant.naive.pipeline.micro_batches (at pipeline.stages=2, variant=naive)"]),
        (study("{pipeline.stages: [1, 2], pipeline.partition: [auto, [1, 1]]}"),
         ["3 axes.pipeline.partition[1] (at pipeline.stages=1, pipeline.partition=[1, 1])"]),
        (study("{optimizr.lr: [1]}"), ["3 axes.optimizr.lr"]),
        (STUDY.replace("run.epochs", "run.epocs"), ["3 set.run.epocs"]),
        (STUDY.replace("run.epochs: 2", "replicas: {count: 2, engine: ray_train}"), None),
        (STUDY.replace("naive: {method", "naive: {pipeline.stages: 2, method"), ["4 axes"]),  # twice the same run
        (search("optimizer.lr: {uniform: [-1, 1]}"), ["3 search.space.optimizer.lr"]),
        (search("data.batch_size: {integers: [0, 8]}"), ["3 search.space.data.batch_size"]),
        (search("optimizr.lr: {choice: [1]}"), ["3 search.space.optimizr.lr"]),
        (STUDY + "search: {trials: 2, space: {optimizer.lr: {uniform: [1, 2]}}, "
         "variants: {naive: {optimizer.eps: {uniform: [-1, 2]}}}}\n",
         ["10 search.variants.naive.optimizer.eps (at pipeline.stages=1, variant=naive, the first of 2 points)"]),
        (study("{seed: [1, 2]}", verdicts="[{claim: a, figure: test, above: 90}, "
               "{claim: a, figure: test, of: {seed: 1}, minus: [{seed: 2}], above: -1}, "
               "{claim: a, figure: validation, source: b, published: 90}, {claim: a, figure: bubble, below: 20}, "
               "{claim: a, figure: test, of: {seed: 1}, minus: [{seed: 2}], above: -0.01}, "
               "{claim: a, figure: test, of: {seed: 1}, over: [{seed: 2}], above: 1.1}]"),
         ["4 verdicts[0].above", "4 verdicts[1].above", "4 verdicts[2].published", "4 verdicts[3].below"]),
        (STUDY.replace("run.epochs: 2", "data.validation_fraction: 0")
         + SEARCH.replace("{trials", "{kind: optuna, trials"),
         ["3 set.data.validation_fraction"]),
        (STUDY.replace("run.epochs: 2", "run.evaluate_every: null, data.validation_fraction: 0") + SEARCH
         + "trial_scheduler: {kind: asha, grace_samples: 100}\n",
         ["3 set.data.validation_fraction", "3 set.run.evaluate_every"]),
    ],
)  # fmt: skip
def test_a_wrong_study_is_refused_where_it_is_wrong(
    told: Callable[..., list[str]], text: str, places: list[str] | None
) -> None:
    found = told(text)
    assert places is None or found == places


def test_the_settings_of_optuna_are_proposed_later(load: Callable[..., Any]) -> None:
    trials = load(STUDY + SEARCH.replace("{trials", "{kind: optuna, trials")).trials
    assert len(trials) == 4 * 3 * 2
    assert not any(trial.values for trial in trials)


def test_halving_keeps_one_trial_in_four(load: Callable[..., Any]) -> None:
    asha = "trial_scheduler: {kind: asha, grace_samples: 100}\n"
    assert load(STUDY + SEARCH + asha).study.trial_scheduler.reduction_factor == 4


@pytest.mark.full
def test_thousands_of_points_are_loaded(load: Callable[..., Any]) -> None:
    rates = [round(0.001 * (number + 1), 6) for number in range(1_500)]
    assert len(load(f"study: many\nbase: base.yaml\naxes: {{optimizer.lr: {rates}}}\n").trials) == 1_500


def test_a_spec_is_no_study(load: Callable[..., Any], write: Callable[[str], Path], small: str) -> None:
    path = write(small)
    assert not is_study(path)
    with pytest.raises(SpecError, match="this is the spec of one run, not a study; run it with `alray run`"):
        load_study(path)
    assert is_study(write(STUDY))
