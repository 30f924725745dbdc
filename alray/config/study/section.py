"""A study spec as one typed value. Attributes are named exactly as the YAML keys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from alray.config.sections.choice import Choice
from alray.config.sections.own_code import FreeValue
from alray.config.sections.section import PositiveInt, Section, SpecPath, listed, refusal
from alray.config.sections.spec import FolderName
from alray.config.study.space import Distribution
from alray.core.metric import ACCURACY, Metric
from alray.core.run_folder.metrics import METRICS

VARIANT = "variant"
"""The axis whose values are named groups of settings."""
BATCH_SIZE = "data.batch_size"
"""The axis of studies that ask how many mini-batches of each size a target takes."""

SCORES = ("validation", "test")
"""Figures that are the metric of the task. The others are what it took."""

FLAT = (("set",), ("axes",), ("follow",), ("search", "space"))
"""Sections whose keys are keys of the base spec: there `run.epochs` is one key."""

_SETTINGS = {"type": "object", "description": "Keys of the base spec, such as `run.epochs`, and their values."}
_AXES = {
    "type": "object",
    "properties": {VARIANT: {"type": "object", "minProperties": 1, "additionalProperties": _SETTINGS}},
    "additionalProperties": {"type": "array", "minItems": 1},
}


Space = Annotated[dict[str, Distribution], Field(min_length=1)]


class Search(Section):
    """A search for good settings, made anew at every point of the axes."""

    kind: str
    """Where the settings come from."""
    trials: PositiveInt
    """Number of settings that are tried at every point."""
    space: Space
    """Keys of the base spec, each with the distribution that its value is drawn from."""
    variants: dict[str, Space] = Field(default_factory=dict)
    """Further keys to search at the points of single variants, by name: keys and distributions as in `space`, whose
    keys they replace. For example the momentum, where there is one."""

    def space_at(self, point: Mapping[str, Any]) -> dict[str, Distribution]:
        """Every key that is searched at a point, with its distribution.

        Args:
            point: axis -> value.
        """
        return {**self.space, **self.variants.get(point.get(VARIANT, ""), {})}


class RandomSearch(Search):
    """Settings that cover the space evenly."""

    kind: Literal["random"] = "random"
    """`random`."""


class OptunaSearch(Search):
    """Settings that are proposed by how earlier ones came out, with the sampler TPE of Optuna (Akiba et al. 2019)."""

    kind: Literal["optuna"]
    """`optuna`."""


AnySearch = Annotated[
    Annotated[RandomSearch, Tag("random")] | Annotated[OptunaSearch, Tag("optuna")],
    Discriminator(Choice("kind", default="random")),
]


class Target(Section):
    """The goal of the trials. A trial ends at the first evaluation that reaches it."""

    metric: Literal[
        "validation_accuracy",
        "validation_error",
        "validation_balanced_accuracy",
        "validation_macro_f1",
        "validation_mean_average_precision",
        "validation_r2",
        "validation_mean_squared_error",
        "validation_mean_absolute_error",
        "validation_nats_per_token",
        "validation_perplexity",
        "validation_bits_per_byte",
        "validation_top_1",
        "validation_score",
        "validation_cost",
    ]
    """Metric that is compared with the bound: that of the trials' task on the validation set. `validation_error` is
    1 - accuracy. Accuracies, this error, macro F1, mean average precision and top-1 lie in 0..1."""
    above: float | None = None
    """Bound of a metric whose highest value is the best, such as `validation_accuracy`: the target is reached if it is
    at least this value."""
    below: float | None = None
    """Bound of an error, such as `validation_error`: the target is reached if it is at most this value."""
    variants: dict[str, float] = Field(default_factory=dict)
    """Bounds of single variants, by name, in place of this one. For workloads whose difficulty differs."""

    @property
    def measures(self) -> Metric:
        """The metric of the task."""
        return METRICS.get(self.metric.removeprefix("validation_"), ACCURACY)

    @model_validator(mode="after")
    def _bound_suits_metric(self) -> Target:
        of_error = self.metric == "validation_error" or self.measures.lowest
        wanted, other = ("below", "above") if of_error else ("above", "below")
        for bound in (getattr(self, wanted), *self.variants.values()):
            if bound is not None and self.measures.share and not 0 <= bound <= 1:
                raise refusal(f"`{self.metric}` lies in 0..1, got the bound {bound:g}", "write a share, such as 0.9")
        if getattr(self, wanted) is None or getattr(self, other) is not None:
            raise refusal(f"`{self.metric}` needs the bound `{wanted}`, and no other", f"write {wanted}: and a value")
        return self

    def bound_at(self, point: Mapping[str, Any]) -> float:
        """The value of the task's metric on the validation set that reaches the target at a point, as better ones do.

        Args:
            point: axis -> value.
        """
        given = self.variants.get(point.get(VARIANT, ""), self.below if self.above is None else self.above) or 0.0
        # Rounded, since 1 - 0.18 is more than 0.82, which 820 of 1,000 right predictions are.
        return round(1.0 - given, 12) if self.metric == "validation_error" else given

    def stop_at(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The values of `run.stop_at` that end a trial of a point at the target."""
        side = "below" if self.measures.lowest else "above"
        return {"metric": f"validation_{self.measures.name}", side: self.bound_at(point)}


_Selector = Annotated[
    dict[str, FreeValue], WithJsonSchema({"type": "object", "description": "Axes and one value of each."})
]


FigureName = Literal[
    "validation",
    "test",
    "step_time_s",
    "predicted_step_time_s",
    "samples_per_s",
    "bubble",
    "training_s",
    "epoch_s",
    "forward_s",
    "backward_s",
    "update_s",
    "parameters",
    "peak_memory_bytes",
    "predicted_memory_bytes",
    "bytes_sent",
    "all_reduce_bytes",
    "steps_to_target",
    "samples_to_target",
    "seconds_to_target",
]
"""A figure of a point, as its column in `tables/points.csv` is named."""


def _is_a_day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise refusal(f"expected a day, got {text}", 'write, for example, "2026-11-22"') from error
    return text


class Verdict(Section):
    """A claim, and the figure of the study that decides whether it holds.

    The report says of each claim that it holds, does not hold, or is not decided by the study, with the numbers.
    Without a bound it gives the figure with its interval, and decides nothing.
    """

    claim: str
    """The claim in plain words."""
    source: str | None = None
    """The publication that makes the claim, such as `Shallue et al. 2019, 4.3`. null: the study makes it
    itself."""
    quote: str | None = None
    """The sentence of the publication that the claim comes from, or the part that makes it, word for word. null: not
    given."""
    paraphrase: str | None = None
    """What the publication says, in words of the study, where its own are not at hand. null: not given."""
    since: Annotated[str, AfterValidator(_is_a_day)] | None = None
    """The day on which the bound of a claim of the study itself was set, such as `2026-11-22`: before or after its
    figure was known. null: not said."""
    figure: Literal[FigureName, "critical_batch_size", "growth_of_best_rate"]
    """The figure that decides: a column of the table of points, or one of a series of batch sizes.
    `critical_batch_size`: that of the curve of steps. `growth_of_best_rate`: the power of the batch size by which the
    best effective rate, lr / (1 - momentum), grows: 1 by the linear rule, 0.5 by that of the square root."""
    of: _Selector = Field(default_factory=dict)
    """Values of axes: the points that the claim is about. It holds if it holds at all of them. Default: all points."""
    over: Annotated[tuple[_Selector, ...], Field(strict=False)] = ()
    """Values of axes: the points whose figure divides that of `of`, the best of them at each value of the other axes.
    Default: none."""
    minus: Annotated[tuple[_Selector, ...], Field(strict=False)] = ()
    """As `over`, but their figure is subtracted. For accuracies. Default: none."""
    than: _Selector = Field(default_factory=dict)
    """Values of axes at which the same difference is subtracted, seed by seed: whether something helps more at one
    value than at another. With one point in `minus`; `of` and it have values of these axes too. Default: none."""
    above: float | None = None
    """Bound: the claim holds if the figure is larger. Default: none."""
    below: float | None = None
    """Bound: the claim holds if the figure is smaller. Default: none."""
    published: float | None = None
    """What the publication gives for this figure. Of an estimate the report says whether its interval contains or
    excludes this value. null: it gives none."""
    samples: PositiveInt | None = None
    """Size of the set that an accuracy is measured on. Then the interval also has the sampling error of that set, which
    matters where a bound is half a point. null: the claim is about this set of samples."""

    @property
    def is_of_series(self) -> bool:
        """Whether its figure is that of a series of batch sizes."""
        return self.figure in ("critical_batch_size", "growth_of_best_rate")

    @property
    def claimed_by(self) -> str | None:
        """The publication with what it says; None if the study makes the claim itself."""
        if self.quote is not None:
            return f"{self.source}: “{self.quote}”"
        return self.source if self.paraphrase is None else f"{self.source}, in other words: {self.paraphrase}"

    @model_validator(mode="after")
    def _has_one_bound(self) -> Verdict:
        if self.above is not None and self.below is not None:
            raise refusal("a claim has `above` or `below`, not both", "remove one of them")
        if self.over and self.minus:
            raise refusal("a claim has `over` or `minus`, not both", "remove one of them")
        if self.than and len(self.minus) != 1:
            raise refusal("`than` compares two differences", "name one point in `minus`, or remove `than`")
        if left_open := [axis for axis in self.than if not all(axis in each for each in (self.of, *self.minus))]:
            raise refusal(
                f"`than` has {listed(left_open, 'and')}, which `of` or `minus` leaves open", "name its value in both"
            )
        if self.source is None and any(each is not None for each in (self.quote, self.paraphrase, self.published)):
            raise refusal("a claim with what a publication says needs its name", "write `source`")
        if self.figure == "critical_batch_size" and (self.minus or len(self.over) > 1):
            raise refusal("critical batch sizes are compared by one ratio", "name one series, in `over`")
        if self.figure == "growth_of_best_rate" and (self.minus or self.over):
            raise refusal("the growth of the best rate is compared with a bound alone", "remove `over` and `minus`")
        if self.samples is not None and (self.figure not in SCORES or self.over):
            raise refusal("`samples` is about an accuracy or a difference of accuracies", "remove it")
        return self


class Fifo(Section):
    """Every trial runs to its end, in order."""

    kind: Literal["fifo"] = "fifo"
    """`fifo`."""


class Asha(Section):
    """Asynchronous successive halving (Li et al. 2020): bad trials of a search are stopped early.

    Trials are compared with those of the same point, by validation accuracy after the same number of samples.
    """

    kind: Literal["asha"]
    """`asha`."""
    grace_samples: PositiveInt
    """Samples that every trial sees before it may be stopped."""
    reduction_factor: Annotated[float, Field(gt=1)] = 4.0
    """One in this many trials continues at each comparison; the next is after so many times the samples. Default: 4."""


TrialScheduler = Annotated[
    Annotated[Fifo, Tag("fifo")] | Annotated[Asha, Tag("asha")],
    Discriminator(Choice("kind", default="fifo")),
]


def _has_keys(settings: dict[str, Any]) -> dict[str, Any]:
    wrong = [key for key in settings if not all(key.split("."))]
    if wrong:
        raise refusal(f"{listed(wrong, 'and')} cannot be a key of a spec", "write, for example, optimizer.lr")
    return settings


class Study(Section):
    """Many runs of one spec with other values: the axes make points, and every point has its trials."""

    study: FolderName
    """Name of the study: its folder is `studies/<name>-<time>`. Letters, digits, `.`, `_` and `-`."""
    base: SpecPath
    """The spec of one run that all trials begin with. A relative path is taken from the folder of the study."""
    set: Annotated[dict[str, FreeValue], AfterValidator(_has_keys), WithJsonSchema(_SETTINGS)] = Field(
        default_factory=dict
    )
    """Keys of the base spec that have another value in every trial."""
    axes: Annotated[dict[str, FreeValue], AfterValidator(_has_keys), WithJsonSchema(_AXES)] = Field(
        default_factory=dict
    )
    """Keys of the base spec, each with a list of values, and `variant` with named groups of settings. Every
    combination is a point of the study."""
    follow: Annotated[dict[str, str], AfterValidator(_has_keys)] = Field(default_factory=dict)
    """Keys of the base spec that have the value of an axis at every point. For example n layers on n stages:
    {model.components.1.repeat: pipeline.stages}."""
    impossible: Literal["refuse", "skip"] = "refuse"
    """What happens to points whose values do not fit together, such as two components on four stages. `refuse`: the
    study is refused. `skip`: they are left out, and the listing and the report say which and why. A value that fits at
    no point is refused in any case."""
    measures: Literal["all", "times"] = "all"
    """`times`: the trials are too short to learn anything. The report says so, and shows no accuracy. `all`:
    everything."""
    repeats: PositiveInt = 1
    """Number of seeds of every trial: the seed of the spec and those after it. Default: 1."""
    sessions: PositiveInt = 1
    """Number of times that the study is started, each with new processes, to measure all its times again. Within a
    session the points run in turns, a seed a turn, forwards and backwards. Times of one day lie closer together than
    those of two. So sessions that begin on one day count as one, and the third day decides claims about times.
    Default: 1."""
    search: AnySearch | None = None
    """Values that are searched for. null: none."""
    target: Target | None = None
    """The goal of the trials. null: every trial runs to its end."""
    verdicts: Annotated[tuple[Verdict, ...], Field(strict=False)] = ()
    """Claims that the study examines. Default: none."""
    doubts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Sentences about what makes all claims of the study doubtful, such as rates that no search has bracketed. The
    report lists them with the claims. Default: none."""
    trial_scheduler: TrialScheduler = Fifo()
    """Which trials continue."""
    max_concurrent: PositiveInt | None = None
    """Largest number of trials at once. 1 for timings. null: as many as the machine has room for."""
