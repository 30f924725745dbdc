"""Study specs: their points and trials, what is drawn, and what is told of a wrong one before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from alray.errors import SpecError
from alray.spec.study.checks import classes_exist
from alray.spec.study.loading import dump_study, is_study, load_study
from alray.spec.study.section import Study
from alray.spec.study.space import Distribution

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
def said(load: Callable[..., Any]) -> Callable[..., list[str]]:
    """What loading a text complains of, one line a problem."""

    def complaints(text: str, *overrides: str) -> list[str]:
        with pytest.raises(SpecError) as caught:
            load(text, *overrides)
        return str(caught.value).replace(f"{Path.cwd()}/", "").split("\n")

    return complaints


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


def test_a_key_follows_an_axis(load: Callable[..., Any], said: Callable[..., list[str]]) -> None:
    loaded = load(STUDY + "follow: {model.components.1.repeat: pipeline.stages}\n")
    assert [spec.model.num_components for spec in loaded.specs] == [2, 2, 3, 3]
    assert loaded.points[2].values == {"pipeline.stages": 2, "variant": "streamed"}
    assert said(STUDY + "follow: {model.components.1.repeat: stages, pipeline.stages: variant}\n") == [
        "x.yaml:10: follow.model.components.1.repeat: `stages` is not an axis with a list of values; choose "
        "`pipeline.stages`",
        "x.yaml:10: follow.pipeline.stages: `variant` is not an axis with a list of values; choose `pipeline.stages`",
        "x.yaml:10: follow.pipeline.stages: an axis of the study sets this key; remove one of the two",
    ]


def test_a_dumped_study_is_the_same_one(load: Callable[..., Any]) -> None:
    loaded = load(STUDY + SEARCH + "target: {metric: validation_error, below: 0.1}\n")
    Path("copy.yaml").write_text(dump_study(loaded.study), encoding="utf-8")
    again = load_study("copy.yaml")
    assert again.study == loaded.study
    assert again.trials == loaded.trials
    assert again.specs == loaded.specs
    assert loaded.specs[0].run.stop_at.above == 0.9


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


def test_all_that_is_wrong_is_told_at_once(said: Callable[..., list[str]]) -> None:
    text = STUDY.replace("[1, 2]", "[1, 3]").replace("repeats: 2", "search: {trials: 5}")
    text = text.replace("  variant", "  optimizer.lrr: [1]\n  seed: []\n  variant")
    assert said(text) == [
        "x.yaml:5: axes.pipeline.stages[1]: 3 stages, but the model has only 2 components; "
        "give at most 2: a stage holds at least one component",
        "x.yaml:6: axes.optimizer.lrr: unknown key; did you mean `lr`?",
        "x.yaml:7: axes.seed: the axis has no values; give at least one value, or remove the axis",
        "x.yaml:11: search.space: this key is required; add `space: ...` (keys of the base spec, each with the "
        "distribution that its value is drawn from)",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schedule: naive", "schedule: 1f1b, pipeline.micro_batches: 1, pipeline.micro_batch_norm: accept",
         "x.yaml:8: axes.variant.naive.pipeline.micro_batches: `1f1b` needs at least as many micro-batches as stages, "
         "got 1 for 2 (at pipeline.stages=2, variant=naive); use 2 or more, or fewer stages"),
        ("naive: {method", "naive: {pipeline.stages: 2, method", None),
        ("base.yaml", "nothing.yaml", "x.yaml:2: base: the file nothing.yaml does not exist; give a spec, relative "
         "to the folder of the study"),
        ("[1, 2]", "[1, 1]", "x.yaml:5: axes.pipeline.stages[1]: 1 is given twice; keep one of them"),
        ("[1, 2]", "2", "x.yaml:5: axes.pipeline.stages: expected a list of values, got 2; write, for example, "
         "[1, 2, 4]"),
        ("streamed: {}", "streamed: 3", "x.yaml:7: axes.variant.streamed: expected keys of the base spec, got 3; "
         "write, for example, {streamed: {}, naive: {pipeline.schedule: naive}}"),
        ("pipeline.stages: [1, 2]", "optimizr.lr: [1]", "x.yaml:5: axes.optimizr.lr: optimizr: unknown key; did you "
         "mean `optimizer`?"),
        ("[1, 2]", "[]", "x.yaml:5: axes.pipeline.stages: the axis has no values; give at least one value, or remove "
         "the axis"),
        ("[1, 2]", "", "x.yaml:5: axes.pipeline.stages: expected a list of values, got null; write, for example, "
         "[1, 2, 4]"),
        ("repeats: 2", "repeats: 0", "x.yaml:9: repeats: must be at least 1, got 0; write a number that is at least "
         "1, or leave the key out for 1"),
        ("repeats", "repeat", "x.yaml:9: repeat: unknown key; did you mean `repeats`?"),
        ("run.epochs", "run.epocs", "x.yaml:3: set.run.epocs: unknown key; did you mean `epochs`?"),
        ("run.epochs: 2", "replicas: {count: 2, engine: ray_train}", None),
    ],
)  # fmt: skip
def test_a_wrong_study_is_refused_where_it_is_wrong(
    said: Callable[..., list[str]], old: str, new: str, message: str | None
) -> None:
    lines = said(STUDY.replace(old, new))
    assert message is None or lines == [message]
    assert all(line.startswith(("x.yaml:", "base.yaml:")) for line in lines)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("{variant: {}}", "axes.variant: the axis has no values; give at least one variant, or remove the axis"),
        ("{variant: [a, b]}", "axes.variant: expected named groups of settings, got a list; write, for example, "
         "{streamed: {}, naive: {pipeline.schedule: naive}}"),
        ("[1]", "axes: expected a section, got a list; write a section, such as {a: 1}, or leave the key out"),
        ("{pipeline.stages: [1, 2], pipeline.partition: [auto, [1, 1]]}", "axes.pipeline.partition[1]: [1, 1] is for 2 "
         "stages, but `stages` is 1 (at pipeline.stages=1, pipeline.partition=[1, 1]); leave `stages` out, or give one "
         "entry per stage"),
    ],
)  # fmt: skip
def test_wrong_axes_are_refused(said: Callable[..., list[str]], axes: str, message: str) -> None:
    assert said(f"study: a\nbase: base.yaml\naxes: {axes}\n") == [f"x.yaml:3: {message}"]


def test_points_that_are_the_same_run_are_refused(said: Callable[..., list[str]]) -> None:
    text = STUDY.replace("naive: {", "naive: {pipeline.stages: 2, ")
    assert said(text) == [
        "x.yaml:4: axes: the points `pipeline.stages=1, variant=naive` and `pipeline.stages=2, variant=naive` are the "
        "same run; a later axis replaces what an earlier one sets"
    ]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("{optimizer.lr: {loguniform: [0, 1]}}", "optimizer.lr: the logarithm of 0 does not exist; begin above 0"),
        ("{optimizer.lr: {uniform: [2, 1]}}", "optimizer.lr: [2, 1] is empty; give the smallest value, then the "
         "largest one"),
        ("{optimizer.lr: {loguniformm: [1, 2]}}", "optimizer.lr.loguniformm: unknown key; did you mean `loguniform`?"),
        ("{optimizer.lr: {uniform: [-1, 1]}}", "optimizer.lr: must be greater than 0, got -1.0"),
        ("{data.batch_size: {integers: [0, 8]}}", "data.batch_size: must be at least 1, got 0"),
        ("{pipeline.stages: {choice: [1, 2]}}", "pipeline.stages: an axis of the study sets this key; remove one of "
         "the two"),
        ("{optimizer.lr: {choice: []}}", "optimizer.lr.choice: expected at least 1 entry, got 0; add 1 entry"),
        ("{optimizer.lr: {}}", "optimizer.lr: give exactly one of `choice`, `uniform`, `loguniform`, "
         "`one_minus_loguniform` and `integers`"),
        ("{optimizr.lr: {choice: [1]}}", "optimizr.lr: optimizr: unknown key; did you mean `optimizer`?"),
    ],
)  # fmt: skip
def test_a_wrong_search_is_refused(said: Callable[..., list[str]], space: str, message: str) -> None:
    lines = said(STUDY + f"search: {{trials: 2, space: {space}}}\n")
    assert any(line.startswith(f"x.yaml:10: search.space.{message}") for line in lines)


@pytest.mark.parametrize(
    ("search", "messages"),
    [
        ("{kind: optuna}", [
            "search.trials: this key is required; add `trials: ...` (number of settings that are tried at every point)",
            "search.space: this key is required; add `space: ...` (keys of the base spec, each with the distribution "
            "that its value is drawn from)",
        ]),
        ("{trials: 2, space: {}}", ["search.space: expected at least 1 entry, got 0; add 1 entry"]),
        ("optuna", [
            "search.trials: this key is required; add `trials: ...` (number of settings that are tried at every point)",
            "search.space: this key is required; add `space: ...` (keys of the base spec, each with the distribution "
            "that its value is drawn from)",
        ]),
        ("{kind: grid, trials: 2, space: {optimizer.lr: {choice: [1]}}}", [
            "search.kind: unknown kind `grid`; known: random, optuna, and your own classes as "
            "python:package.module.Class",
        ]),
    ],
)  # fmt: skip
def test_a_search_needs_a_known_kind_and_a_space(
    said: Callable[..., list[str]], search: str, messages: list[str]
) -> None:
    assert said(f"{STUDY}search: {search}\n") == [f"x.yaml:10: {message}" for message in messages]


@pytest.mark.parametrize(
    ("key", "decides"),
    [
        ("pipeline", "pipeline.stages"),
        ("replicas.count", "replicas.count"),
        ("resources.per_stage", "resources"),
        ("resources", "resources"),
    ],
)
def test_optuna_proposes_when_it_is_known_what_a_trial_asks_for(
    said: Callable[..., list[str]], key: str, decides: str
) -> None:
    text = f"study: a\nbase: base.yaml\nsearch: {{kind: optuna, trials: 2, space: {{{key}: {{choice: [1]}}}}}}\n"
    assert (
        f"x.yaml:3: search.space.{key}: `optuna` proposes values when a trial starts, and {decides} decides where it "
        "can start; make it an axis, or search with `kind: random`"
    ) in said(text)


def test_optuna_compares_on_a_validation_set(said: Callable[..., list[str]], load: Callable[..., Any]) -> None:
    search = SEARCH.replace("{trials", "{kind: optuna, trials")
    trials = load(STUDY + search).trials
    assert len(trials) == 4 * 3 * 2
    assert not any(trial.values for trial in trials)  # they are proposed later
    assert said(STUDY.replace("run.epochs: 2", "data.validation_fraction: 0") + search) == [
        "x.yaml:3: set.data.validation_fraction: `optuna` compares trials on a validation set, and there is none; "
        "set data.validation_fraction, to 0.1 say"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('search: {kind: "python:nowhere.Mine", trials: 2, space: {optimizer.lr: {choice: [1]}}}',
         "search.kind: `python:nowhere.Mine`: there is no module `nowhere` in "),
        ('search: {kind: "python:ray.tune.search.Searcher", trials: 2, space: {optimizer.momentum: '
         "{one_minus_loguniform: [0.5, 0.9]}}}",
         "search.space.optimizer.momentum.one_minus_loguniform: Ray Tune has no such distribution for its searchers; "),
        ('trial_scheduler: {kind: "python:ray.tune.schedulers.HyperBandScheduler"}\n'
         "set: {run.checkpoint: {every: 3 steps}}",
         "set.run.checkpoint: run.checkpoint.every: `python:ray.tune.schedulers.HyperBandScheduler` may pause a trial "
         "at an evaluation, and there is no checkpoint at each of them; "),
        ('trial_scheduler: {kind: "python:ray.tune.schedulers.HyperBandScheduler"}\n'
         "search: {trials: 2, space: {pipeline.stages: {choice: [1, 2]}}}",
         "search.space.pipeline.stages: `python:ray.tune.schedulers.HyperBandScheduler` may change values while a "
         "trial runs, and pipeline.stages decides where it can start; make it an axis"),
    ],
)  # fmt: skip
def test_what_a_searcher_or_scheduler_of_ones_own_cannot_do_is_refused(
    write: Callable[[str], Path], small: str, text: str, message: str
) -> None:
    Path("base.yaml").write_text(small, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_study(
            write(f"study: a\nbase: base.yaml\n{text}\n"),
            also_of_study=[partial(classes_exist, allow_elsewhere=False)],
        )
    assert any(message in line for line in str(caught.value).split("\n"))


def test_what_is_searched_for_a_variant_belongs_to_a_variant_and_to_no_axis(said: Callable[..., list[str]]) -> None:
    search = "search: {trials: 2, space: {optimizer.lr: {uniform: [1, 2]}}, variants: {"
    assert said(STUDY + search + "naiv: {optimizer.eps: {uniform: [1, 2]}}}}\n") == [
        "x.yaml:10: search.variants.naiv: `naiv` is not a variant of the study; choose one of `streamed` or `naive`"
    ]
    assert said(STUDY + search + "naive: {optimizer.eps: {uniform: [-1, 2]}, pipeline.stages: {choice: [1]}}}}\n") == [
        "x.yaml:10: search.variants.naive.pipeline.stages: an axis of the study sets this key; remove one of the two",
        "x.yaml:10: search.variants.naive.optimizer.eps: must be greater than 0, got -1.0 (at pipeline.stages=1, "
        "variant=naive, the first of 2 points); write a number that is greater than 0, or leave the key out for 1e-08",
    ]


def test_halving_compares_the_trials_of_a_search_on_a_validation_set(
    said: Callable[..., list[str]], load: Callable[..., Any]
) -> None:
    asha = "trial_scheduler: {kind: asha, grace_samples: 100}\n"
    assert said(STUDY + asha) == [
        "x.yaml:10: trial_scheduler: `asha` compares the trials of a search, and there is none; add `search`"
    ]
    assert load(STUDY + SEARCH + asha).study.trial_scheduler.reduction_factor == 4
    text = STUDY.replace("run.epochs: 2", "run.evaluate_every: null, data.validation_fraction: 0")
    assert [line.split(";")[0] for line in said(text + SEARCH + asha)] == [
        "x.yaml:3: set.data.validation_fraction: `asha` compares trials on a validation set, and there is none",
        "x.yaml:3: set.run.evaluate_every: `asha` compares trials by their evaluations, and there are none before the "
        "end",
    ]


def test_thousands_of_points_are_loaded_unless_their_specs_are_too_large(
    load: Callable[..., Any], said: Callable[..., list[str]]
) -> None:
    rates = [round(0.001 * (number + 1), 6) for number in range(1_500)]
    text = f"study: many\nbase: base.yaml\naxes: {{optimizer.lr: {rates}}}\n"
    assert len(load(text).trials) == 1_500
    components = ", ".join(["{block: vgg, channels: [4]}"] * 900)
    Path("big.yaml").write_text(f"name: big\nmodel: {{components: [{components}]}}\n", encoding="utf-8")
    (line,) = said(text.replace("base.yaml", "big.yaml"))
    assert line.startswith("x.yaml:3: axes: the specs of the points have ") and "more than 1,000,000" in line


def test_a_spec_is_no_study(load: Callable[..., Any], write: Callable[[str], Path], small: str) -> None:
    path = write(small)
    assert not is_study(path)
    with pytest.raises(SpecError, match="this is the spec of one run, not a study; run it with `alray run`"):
        load_study(path)
    assert is_study(write(STUDY))


def test_every_key_of_a_study_has_a_docstring() -> None:
    assert all(field.description for field in Study.model_fields.values())
