"""The plan: what runs on which stage, when, and how long it is predicted to take. A value with a JSON form."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from alray.planning.prediction.setting import StepLayout
from alray.planning.schedules.actions import Action
from alray.planning.schedules.edge_slots import most_in_use

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True)
class Memory:
    """Predicted peak of one stage in bytes: the size of each part at the moment when their sum is largest.

    The parts are the tensors of the stage, as torch allocates them. The memory of libraries is not included, nor is the
    data set that stage 0 reads.
    """

    parameters_bytes: int  # with buffers, and all versions of the weights
    gradients_bytes: int  # with the copy in which replicas average them
    optimizer_bytes: int
    activations_bytes: int  # what forwards left for their backwards
    channel_bytes: int  # rings of send and receive buffers
    snapshot_bytes: int  # the copy a checkpoint is written from; 0 where that is not in the memory of the device
    temporary_bytes: int = 0  # temporary tensors of the computation at that moment
    batch_bytes: int = 0  # the mini-batch stage 0 works on; on a GPU, the next one too

    @property
    def total_bytes(self) -> int:
        return sum(asdict(self).values())


@dataclass(frozen=True)
class StagePlan:
    """One stage: its components `first` to `last` (counted from 0, both included) and their cost.

    A stage with several virtual stages holds one run of components for each. `chunks` then has the first and last
    component of every run; `first` and `last` are those of the lowest run. Seconds are those of a mini-batch, over all
    runs and micro-batches, each of which takes a fixed time too; `forward_s` includes forwards that are computed again,
    `backward_s` label chain and losses. `data_s`, on stage 0, is reading the mini-batch. `averages_s` is averaging over
    the replicas.
    """

    stage: int
    first: int
    last: int
    forward_s: float
    backward_s: float
    update_s: float
    memory: Memory
    chunks: tuple[tuple[int, int], ...] = ()
    data_s: float = 0.0
    averages_s: float = 0.0

    @property
    def runs(self) -> tuple[range, ...]:
        """The components of each virtual stage, the lowest first."""
        chunks = self.chunks or ((self.first, self.last),)
        return tuple(range(first, last + 1) for first, last in chunks)

    @property
    def components(self) -> tuple[int, ...]:
        """All components of the stage, the lowest first."""
        return tuple(index for run in self.runs for index in run)

    @property
    def title(self) -> str:
        """The stage with its components in messages, such as `stage 0 (components 0 to 2 and 7)`."""
        runs = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in self.runs]
        several = "s" if len(self.components) > 1 else ""
        return f"stage {self.stage} (component{several} {' and '.join(runs)})"


@dataclass(frozen=True)
class EdgePlan:
    """One edge between two stages, and the bytes of one mini-batch that go over it in the direction of the arrow.

    Gradients have separate edges ("1->0"). With virtual stages there is also an edge from the last stage to the
    first.
    """

    edge: str  # "0->1"
    bytes_per_step: int
    uncompressed_bytes_per_step: int | None = None  # without compression of messages; None: there is none


@dataclass(frozen=True, kw_only=True)
class Plan(StepLayout):
    """The work of each stage and the prediction: all that a graph needs besides the spec."""

    method: str
    partition: tuple[int, ...]  # components per stage; per virtual stage where there are several on each
    steps_per_epoch: int
    total_steps: int | None  # None where no number of steps ends the run
    stage_plans: tuple[StagePlan, ...]
    edges: tuple[EdgePlan, ...]
    predicted_step_time_s: float
    predicted_bubble: float | None  # as `Summary.bubble`; None where stages take turns in one process
    bound_s: float  # the schedule's bound: with these costs no step is shorter
    limited_by: str  # one sentence: what limits the step, and a better cut where there is one
    evaluation_s: float  # predicted duration of one evaluation
    deadline_s: float  # where no stage goes on for longer, the run continues from its last checkpoint
    shares: tuple[int, ...] = ()  # samples of a mini-batch each replica takes at first
    nodes: tuple[str, ...] = ()  # of each stage, replica by replica; (): all on one
    assumed: str | None = None  # a sentence: what was taken for data that are not there; None: they were opened
    machines: str | None = None  # that it is for, in words; None: this one, or those of a cluster
    predicted_step_range_s: tuple[float, float] | None = None  # with the least and the most of `Costs.spread`
    too_large: str | None = None  # a sentence: which stage needs more than its device has; None: none is known to
    basis: dict[str, str] = field(default_factory=dict, hash=False)  # where times, memory and links come from

    @property
    def longest_wait_s(self) -> float:
        """How long a stage waits for another one. A backstop: the driver normally ends a graph long before. Other
        replicas wait while the first one evaluates."""
        return max(300.0, 10.0 * (self.deadline_s + self.evaluation_s))

    @property
    def schedule_name(self) -> str:
        """The name of the schedule as it is shown; of a file, its name."""
        return self.scheduled.name

    def actions(self, stage: int) -> tuple[Action, ...]:
        """The actions of `stage` for mini-batch 0; every mini-batch has the same list."""
        return self.scheduled.actions(stage, self.stages, 0, self.micro_batches, self.virtual_stages)

    def waiting(self, source: int, goal: int, *, down: bool) -> int:
        """How many messages may wait on the edge from one stage to another while the receiver works on one more.

        With local losses those of `in_flight` mini-batches; in a pipeline as many as its lists ever have on the way.
        """
        if self.scheduled.is_pipeline:
            parts = self.micro_batches, self.virtual_stages
            return max(1, most_in_use(self.schedule, source, goal, self.stages, *parts, down=down) - 1)
        if down:
            return self.in_flight
        return self.in_flight * sum(
            self.stage_of(virtual + 1) == goal for virtual in self.held(source) if virtual < self.top
        )

    def as_json(self) -> dict[str, Any]:
        value = asdict(self)
        for stage, entry in zip(self.stage_plans, value["stage_plans"], strict=True):
            entry["memory"]["total_bytes"] = stage.memory.total_bytes
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Plan:
        """The plan of which `as_json` gave `value`. Raises pydantic's ValidationError if it is none."""
        return _adapter().validate_python(value)


@cache
def _adapter() -> TypeAdapter[Plan]:
    from pydantic import TypeAdapter  # only where a plan is read: making one needs no library

    return TypeAdapter(Plan)
