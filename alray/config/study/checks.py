"""Checks of a study that look at more than one key: each gives the key, what is wrong, and the hint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from alray.config.sections.checks import Finding
from alray.config.sections.paths import Path
from alray.config.sections.section import describe, listed
from alray.config.sections.spec import Spec
from alray.config.study.points import parts_of, same_value, value_text
from alray.config.study.section import BATCH_SIZE, SCORES, VARIANT, Search, Study, Verdict

StudyCheck = Callable[[Study], Iterator[Finding]]

_RATE = "optimizer.lr"
_MOST_POINTS = 10_000
_MOST_TRIALS = 100_000


def base_is_a_file(study: Study) -> Iterator[Finding]:
    """The trials begin with a spec."""
    if not study.base.is_file():
        fault = "is a folder" if study.base.is_dir() else "does not exist"
        yield ("base",), f"{study.base} {fault}", "give the file of a spec, relative to the folder of the study"


def axes_are_lists(study: Study) -> Iterator[Finding]:
    """An axis has values, each of them once. The axis `variant` has named groups of settings."""
    for axis, values in study.axes.items():
        if axis == VARIANT:
            yield from _variants(values)
        elif not isinstance(values, list):
            yield ("axes", axis), f"expected a list of values, got {describe(values)}", "write, for example, [1, 2, 4]"
        elif not values:
            yield ("axes", axis), "the axis has no values", "give at least one value, or remove the axis"
        else:
            texts = [json.dumps(value, sort_keys=True) for value in values]
            for index, text in enumerate(texts):
                if text in texts[:index]:
                    yield ("axes", axis, index), f"{value_text(values[index])} is given twice", "keep one of them"


def _variants(variants: object) -> Iterator[Finding]:
    hint = "write, for example, {streamed: {}, naive: {pipeline.schedule: naive}}"
    if not isinstance(variants, dict):
        yield ("axes", VARIANT), f"expected named groups of settings, got {describe(variants)}", hint
    elif not variants:
        yield ("axes", VARIANT), "the axis has no values", "give at least one variant, or remove the axis"
    else:
        for name, settings in variants.items():
            if not isinstance(settings, dict):
                yield ("axes", VARIANT, name), f"expected keys of the base spec, got {describe(settings)}", hint
            else:
                for key in settings:
                    if not all(key.split(".")):
                        yield ("axes", VARIANT, name, key), "this cannot be a key of a spec", "write optimizer.lr, say"


def it_has_an_end(study: Study) -> Iterator[Finding]:
    """The combinations of all values are not too many to be checked, and the trials not too many to be listed."""
    lengths = {axis: len(values) for axis, values in study.axes.items() if isinstance(values, list | dict) and values}
    points = prod(lengths.values())
    if points > _MOST_POINTS:
        longest = max(lengths, key=lambda axis: lengths[axis])
        yield ("axes", longest), f"the axes make {points:,} points, more than {_MOST_POINTS:,}", "give fewer values"
        return
    settings = study.search.trials if study.search is not None else 1
    counts: dict[Path, int] = {
        ("repeats",): study.repeats,
        ("sessions",): study.sessions,
        ("search", "trials"): settings,
    }
    if points * prod(counts.values()) > _MOST_TRIALS:
        longest_key = max(counts, key=lambda key: counts[key])
        yield longest_key, f"the study would have more than {_MOST_TRIALS:,} trials", "give a smaller number"


def followed_axes_have_values(study: Study) -> Iterator[Finding]:
    """A key follows an axis whose values are those of a key. Another axis cannot set it."""
    axes = [axis for axis in study.axes if axis != VARIANT]
    for key, axis in study.follow.items():
        if axis not in axes:
            hint = f"choose {listed(axes)}" if axes else "add the axis, with a list of values"
            yield ("follow", key), f"`{axis}` is not an axis with a list of values", hint
        if key in study.axes:
            yield ("follow", key), "an axis of the study sets this key", "remove one of the two"


def a_key_is_set_once(study: Study) -> Iterator[Finding]:
    """Check that no key of an axis is drawn at random too, and that no axis sets a key that the study itself sets."""
    searched = _searched(study.search) if study.search is not None else []
    for path, key in searched:
        if key in study.axes:
            yield path, "an axis of the study sets this key", "remove one of the two"
        if key == "seed":
            yield path, "`repeats` sets the seeds of the trials", "remove it"
    if study.repeats > 1 and "seed" in study.axes:
        yield ("axes", "seed"), "`repeats` sets the seeds of the trials", "remove one of the two"


def a_target_is_set_once(study: Study) -> Iterator[Finding]:
    """Check that no key replaces the bound that the target sets."""
    if study.target is None:
        return
    # `target` comes after `set`, so a section `run` without this key may stand there.
    fixed = [
        key for key, value in study.set.items() if key != "run" or (isinstance(value, dict) and "stop_at" in value)
    ]
    for key in dict.fromkeys([*fixed, *(key for _, key in _varied(study) if key != "run")]):
        if parts_of(key)[:2] in (("run",), ("run", "stop_at")):
            yield ("target",), f"`target` sets run.stop_at, and so does the key `{key}`", "remove one of the two"
    for path, key in _varied(study):
        if key == "run":
            yield path, "the section `run` replaces the target", "write its keys one by one, such as `run.epochs`"


def _varied(study: Study) -> list[tuple[Path, str]]:
    """Every key that may differ between trials, with its path in the study."""
    found: list[tuple[Path, str]] = [(("axes", axis), axis) for axis in study.axes if axis != VARIANT]
    variants = study.axes.get(VARIANT)
    for name, settings in variants.items() if isinstance(variants, dict) else ():
        found += [(("axes", VARIANT, name, key), key) for key in settings] if isinstance(settings, dict) else []
    found += [(("follow", key), key) for key in study.follow]
    return found + (_searched(study.search) if study.search is not None else [])


def _searched(search: Search) -> list[tuple[Path, str]]:
    """Every key that is searched, with its path in the study."""
    found: list[tuple[Path, str]] = [(("search", "space", key), key) for key in search.space]
    for name, own in search.variants.items():
        found += [(("search", "variants", name, key), key) for key in own]
    return found


def named_variants_exist(study: Study) -> Iterator[Finding]:
    """Check that every variant with a separate search space or target is a variant of the study."""
    variants = study.axes.get(VARIANT)
    names = list(variants) if isinstance(variants, dict) else []
    hint = f"choose one of {listed(names)}" if names else f"add the axis `{VARIANT}`"
    for section, of in (("search", study.search), ("target", study.target)):
        for name in of.variants if of is not None else ():
            if name not in names:
                yield (section, "variants", name), f"`{name}` is not a variant of the study", hint


def claims_name_values_of_axes(study: Study) -> Iterator[Finding]:
    """A claim is about points of the study; figures of the way to a target need one."""
    for number, verdict in enumerate(study.verdicts):
        selectors: list[tuple[Path, dict[str, Any]]] = [(("of",), verdict.of), (("than",), verdict.than)]
        selectors += [(("over", index), each) for index, each in enumerate(verdict.over)]
        selectors += [(("minus", index), each) for index, each in enumerate(verdict.minus)]
        for path, selector in selectors:
            for axis, value in selector.items():
                values = study.axes.get(axis)
                if not isinstance(values, list | dict):
                    hint = f"choose {listed(list(study.axes))}" if study.axes else "add the axis"
                    yield ("verdicts", number, *path, axis), f"`{axis}` is not an axis of the study", hint
                elif not any(same_value(value, each) for each in values):
                    hint = f"choose {listed(list(map(_written, values)))}" if values else "give the axis values"
                    yield ("verdicts", number, *path, axis), f"`{axis}` has no value {value_text(value)}", hint
        if study.target is None and (verdict.is_of_series or verdict.figure.endswith("_to_target")):
            message = f"`{verdict.figure}` is about the way to a target, and there is none"
            yield ("verdicts", number, "figure"), message, "add `target`, or decide by another figure"
        yield from ((("verdicts", number, *path), message, hint) for path, message, hint in _empty(verdict, study))


def _empty(verdict: Verdict, study: Study) -> Iterator[Finding]:
    """Why a claim can never be decided, or compares a point with itself."""
    searched = [key for _, key in _searched(study.search)] if study.search is not None else []
    if verdict.figure == "growth_of_best_rate" and _RATE not in searched:
        message = "`growth_of_best_rate` is about the best rate of a search, and none is searched"
        yield ("figure",), message, f"search `{_RATE}`, or decide by another figure"
    if verdict.is_of_series and BATCH_SIZE not in study.axes:
        message = f"`{verdict.figure}` is about several batch sizes, and `{BATCH_SIZE}` is no axis"
        yield ("figure",), message, "add the axis, or decide by another figure"
    series: list[tuple[Path, dict[str, Any]]] = [(("of",), verdict.of)]
    series += [(("over", index), each) for index, each in enumerate(verdict.over)]
    for path, selector in series if verdict.is_of_series else ():
        if BATCH_SIZE in selector:
            yield (*path, BATCH_SIZE), f"`{verdict.figure}` is about all batch sizes together", "remove it"
    counts = {axis: len(values) for axis, values in study.axes.items() if isinstance(values, list | dict)}
    counts = {axis: count for axis, count in counts.items() if count > 1 and axis in verdict.of and axis != BATCH_SIZE}
    for index, other in enumerate(verdict.over if verdict.is_of_series else ()):
        left_open = [axis for axis in counts if axis not in other]
        if prod(counts[axis] for axis in left_open) - int(_has(verdict.of, other)) > 1:  # `of` is none of the others
            message = f"critical batch sizes are compared by one ratio, and this leaves {listed(left_open, 'and')} open"
            yield ("over", index), message, "name its value, as `of` does"
    if verdict.figure.endswith("_to_target") and verdict.minus and study.search is not None:
        yield ("minus",), "searches are compared by ratios, not by differences", "write `over`"
    for section, others in (("over", verdict.over), ("minus", verdict.minus)):
        for index, other in enumerate(others):
            if _has(verdict.of, other) and _has(other, verdict.of):
                message = "this point is the one that `of` names, so it would be compared with itself"
                yield (section, index), message, "name another value of an axis"
    if verdict.than and all(_has(each, verdict.than) for each in (verdict.of, *verdict.minus)):
        message = "these are the values of `of` and `minus`, so the difference would be subtracted from itself"
        yield ("than",), message, "name another value of an axis"


def _has(point: dict[str, Any], values: dict[str, Any]) -> bool:
    return all(axis in point and same_value(point[axis], value) for axis, value in values.items())


def _written(value: object) -> str:
    """A value as it may stand in the study."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def trials_share_a_metric(study: Study) -> Iterator[Finding]:
    """Values of two metrics cannot be compared."""
    for path, key in _varied(study):
        if key in ("task", "task.kind", "task.metric"):
            yield path, "trials of different metrics cannot be compared", "set it for all of them, in `set`"


def times_tell_no_accuracy(study: Study) -> Iterator[Finding]:
    """A study that measures times only has neither a goal for accuracies nor claims about them."""
    if study.measures == "all":
        return
    wants: dict[Path, object] = {("target",): study.target, ("search",): study.search}
    for path, wanted in wants.items():
        if wanted is not None:
            yield path, "`measures: times` leaves out accuracies, which this needs", "remove one of the two"
    for number, verdict in enumerate(study.verdicts):
        if verdict.figure in SCORES:
            message = "`measures: times` leaves out accuracies"
            yield ("verdicts", number, "figure"), message, "decide by a time, or write measures: all"


def sessions_measure_times(study: Study) -> Iterator[Finding]:
    """Another session repeats what a machine does, not what a search does."""
    if study.sessions > 1 and study.search is not None:
        yield ("sessions",), "sessions measure times again, and this study has a `search`", "remove one of the two"


def halving_needs_a_search(study: Study) -> Iterator[Finding]:
    """ASHA compares the trials of one point, which differ only by their search."""
    if study.trial_scheduler.kind == "asha" and study.search is None:
        yield ("trial_scheduler",), "`asha` compares the trials of a search, and there is none", "add `search`"


def resources_are_known(study: Study) -> Iterator[Finding]:
    """Check that no drawn setting changes a trial's resources: they are requested before the setting is drawn."""
    if study.search is None:
        return
    for path, key in _searched(study.search) if study.search.kind != "random" else ():
        for fixed in ("pipeline.stages", "replicas.count", "resources"):
            if all(one == other for one, other in zip(key.split("."), fixed.split("."), strict=False)):
                who = f"`{study.search.kind}` proposes values when a trial starts"
                message = f"{who}, and {fixed} decides where it can start"
                yield path, message, "make it an axis, or search with `kind: random`"


def trial_faults(study: Study, spec: Spec) -> Iterator[tuple[str, str, str]]:
    """Yield each reason why a trial cannot run this spec: key of the spec, message, hint."""
    if spec.replicas.engine == "ray_train":
        message = "a trial runs in a separate placement group, where the workers of `ray_train` have no room"
        yield "replicas.engine", message, "set replicas.engine to graph"
    scheduler = study.trial_scheduler.kind
    proposed = study.search is not None and study.search.kind != "random"
    if (scheduler != "fifo" or proposed) and not spec.data.has_validation:
        who = scheduler if scheduler != "fifo" or study.search is None else study.search.kind
        message = f"`{who}` compares trials on a validation set, and there is none"
        yield "data.validation_fraction", message, "set data.validation_fraction, to 0.1 say"
    if scheduler != "fifo" and spec.run.evaluate_every is None:
        message = f"`{scheduler}` compares trials by their evaluations, and there are none before the end"
        yield "run.evaluate_every", message, "set run.evaluate_every"


def claims_of_shares(study: Study, spec: Spec) -> Iterator[Finding]:
    """Check that claims about a share of a whole, such as an accuracy, are no percentages.

    Args:
        spec: that of any point: all have one metric.
    """
    for number, verdict in enumerate(study.verdicts):
        is_share = verdict.figure == "bubble" or (verdict.figure in SCORES and spec.task.measures.share)
        if verdict.over or not is_share:
            continue
        for key in ("above", "below", "published"):
            value = getattr(verdict, key)
            if value is None or (-1 < value < 1 if verdict.minus else 0 <= value <= 1):
                continue
            lies = "differences of `{}` lie between -1 and 1" if verdict.minus else "`{}` lies in 0..1"
            message = f"{lies.format(verdict.figure)}, got {value:g}"
            yield (
                ("verdicts", number, key),
                message,
                ("write a share: half a point is 0.005; in a study folder, edit its study.yaml"),
            )


CHECKS: tuple[StudyCheck, ...] = (
    base_is_a_file,
    axes_are_lists,
    it_has_an_end,
    followed_axes_have_values,
    a_key_is_set_once,
    a_target_is_set_once,
    named_variants_exist,
    claims_name_values_of_axes,
    trials_share_a_metric,
    times_tell_no_accuracy,
    sessions_measure_times,
    halving_needs_a_search,
    resources_are_known,
)
