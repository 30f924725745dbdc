"""The costs of components. They come from a probe, from counting, or from the spec."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from alray.planning.schedules.durations import Through

Time = Annotated[float, Ge(0), Le(1e9)]
"""Seconds, up to thirty years. A file with costs has no others."""
Difference = Annotated[float, Ge(-1e9), Le(1e9)]
Size = Annotated[int, Ge(0), Le(10**18)]
Count = Annotated[int, Ge(1), Le(10**18)]
Share = Annotated[float, Ge(0), Le(1)]
Ratio = Annotated[float, Gt(0), Le(1e3)]
Slowdown = Annotated[float, Ge(1), Le(1e3)]


@dataclass(frozen=True)
class ComponentCosts:
    """Costs of one component for one mini-batch of `Costs.batch_size` samples on one device.

    Times are seconds; sizes are bytes; `parameters` counts trainable scalars.
    """

    name: str
    forward_s: Time  # F: what is passed on
    backward_s: Time  # L and B together: label chain, local losses and their gradients
    update_s: Time  # U: optimizer steps
    infer_s: Time  # E: the encoder in evaluation mode, with the turn of the route that ends here and its first D
    route_s: Time  # D: this component's decoder, for one route from above
    parameters: Size
    parameter_bytes: Size  # weights and buffers
    gradient_bytes: Size
    optimizer_bytes: Size
    activation_bytes: Size  # what autograd keeps between F and U
    output_bytes: Size  # what a training message after this component holds
    infer_bytes: Size  # what an evaluation message upwards after this component holds
    route_bytes: Size  # what one depth's message downwards before this component holds
    output_shape: tuple[int, ...]  # of s, without the batch dimension
    ends_route: bool = True  # whether a route of inference has this depth
    parts: dict[str, int] = field(default_factory=dict, hash=False)  # `parameters` by part: f, b, g, h; f, head
    along_parameters: Size | None = None  # that every route over this component uses; None: not counted
    turn_parameters: Size = 0  # that only the route which ends at this component uses
    # Peaks in bytes, without weights and optimizer state; 0: no more than activation_bytes.
    forward_peak_bytes: Size = 0  # in F and L
    backward_peak_bytes: Size = 0  # in B, with what F and L left and the gradients that B makes
    adding_peak_bytes: Size = 0  # in a B that adds to gradients, without these gradients
    # Of these, what does not depend on the number of samples: new gradients, and in mixed precision lower copies of
    # weights.
    activation_fixed_bytes: Size = 0
    forward_fixed_bytes: Size = 0
    backward_fixed_bytes: Size = 0
    adding_fixed_bytes: Size = 0
    update_peak_bytes: Size = 0  # in U, besides gradients
    # Of forward_s and backward_s, what each micro-batch takes independently of its size; below 0 where small
    # micro-batches are faster.
    forward_fixed_s: Difference = 0.0
    backward_fixed_s: Difference = 0.0
    reduce_s: Time = 0.0  # between B and U, with several replicas: their gradients are averaged
    average_bytes: Size = 0  # with several replicas, of the tensor in which they are averaged
    average_state_bytes: Size = 0  # with several replicas, of what is kept from one average to the next one
    label_s: Time = 0.0  # of backward_s, the label chain and the losses (L)
    label_bytes: Size = 0  # of output_bytes, the part with the labels
    mask_bytes: Size = 0  # of output_bytes, the mask of text, which has no gradient
    compressed_gradient_bytes: Size | None = None  # of a message of gradients down; None: they are not compressed
    uncompressed_bytes: Size | None = None  # what output_bytes would be without compression; None: there is none

    @property
    def whole_bytes(self) -> int:
        """What `output_bytes` would be without compression."""
        return self.output_bytes if self.uncompressed_bytes is None else self.uncompressed_bytes

    @property
    def gradient_message_bytes(self) -> int:
        """What a message of gradients holds that comes down to this component, of a mini-batch."""
        if self.compressed_gradient_bytes is not None:
            return self.compressed_gradient_bytes
        return self.uncompressed_gradient_bytes

    @property
    def uncompressed_gradient_bytes(self) -> int:
        """The same without compression: as many bytes as the output, without its mask."""
        return self.whole_bytes - self.label_bytes - self.mask_bytes

    @property
    def train_s(self) -> float:
        """F + B + U of one mini-batch, seconds."""
        return self.forward_s + self.backward_s + self.update_s


_COMPUTED = (
    "forward_s",
    "backward_s",
    "update_s",
    "infer_s",
    "route_s",
    "label_s",
    "forward_fixed_s",
    "backward_fixed_s",
)


@dataclass(frozen=True)
class Link:
    """The network between the nodes of two neighbouring stages. Messages of a direction go over it one after another.
    So do those of a stage to both of its neighbours, because they go through one network card, or within a node through
    the one link of its device.

    Neither stage is busy with a message on its way. A sender sends the next one when what is left of those before fits
    the system's buffer.
    """

    latency_s: float  # of a small message, one way
    up_s_per_byte: float  # from the lower stage to the upper one
    down_s_per_byte: float
    buffer_bytes: float = 0.0  # that the system takes from a sender before they are on their way
    own_line: bool = False  # whether it is no card's: what goes over other links does not hold it up
    of_device: bool = False  # whether it is a device's within its node: what goes through the card does not hold it up

    @property
    def through(self) -> Through:
        """What messages over it share with all others that their sender sends through one."""
        return "itself" if self.own_line else "device" if self.of_device else "card"

    def __str__(self) -> str:
        up, down = (_rate(1 / each) for each in (self.up_s_per_byte, self.down_s_per_byte))
        rates = up if up == down else f"{up} up, {down} down"
        return f"{rates}, {1e3 * self.latency_s:,.4g} ms" if self.latency_s else rates


def _rate(bytes_per_s: float) -> str:
    if bytes_per_s >= 1e9:
        return f"{bytes_per_s / 1e9:.4g} GB/s"
    return f"{8e-6 * bytes_per_s:,.4g} Mbit/s"


@dataclass(frozen=True)
class Costs:
    """Costs of every component, in order, and of the edges between stages."""

    source: Literal["probe", "estimated", "given", "roofline", "file"]
    device: str  # as recorded: CPU model or GPU model
    threads: Count
    batch_size: Count
    components: tuple[ComponentCosts, ...]
    processor_share: Share = 1.0  # of the times above, the share that keeps a processor busy; a block may also wait
    data_s: Time = 0.0  # stage 0 takes this to get a mini-batch ready
    edge_latency_s: Time = 2.0e-4  # of one message
    edge_s_per_byte: Time = 5.0e-10  # packing, moving and unpacking
    action_overhead_s: Time = 1.0e-4  # of a pipeline's stage, for each computation on a micro-batch, whatever its size
    # The two halves of a split backward and what its forward takes longer, relative to a whole backward.
    split_backward: Ratio = 1.0
    # Of a split backward, the share of I, which the stage below waits for, with what its forward takes longer.
    input_gradient_share: Share = 0.5
    contention: Slowdown = 1.0  # relative duration of a computation while others compute too, as many as `beside`
    beside: Size = 0  # of `contention`; 0: all other stages of the plan, or as many as there are processors for
    jitter_s: Time = 0.0  # variance of a computation's time over its time, while all other processors compute too
    batch_bytes: Size = 0  # of a mini-batch as stage 0 reads it
    copy_bytes: Size = 0  # of a copy that the last stage sends to every other one (`Method.copied`)
    copy_every: Count = 1  # mini-batches from one of these copies to the next
    taken_processors: float = 0.0  # that other programs took from the measurement
    origin: str = ""  # words on where the times come from, if they are not of this machine
    spread: tuple[Ratio, Ratio] = (1.0, 1.0)  # the least and the most that the true times may be, over these
    spread_origin: str = ""  # words on where the spread comes from
    precision: str = ""  # `run.precision` that they are of; "": not known
    optimizer: str = ""  # kind of the optimizer; "": not known
    accumulate: Size = 0  # mini-batches that share an update; 0: not known
    method: str = ""  # its kind; "": not known
    compiled: bool | None = None  # whether by code that is compiled (`run.compile`); None: not known
    settings: dict[str, Any] = field(default_factory=dict, hash=False)  # of the spec measured; {}: not known, or told
    chain: bool = False  # whether a public chain stands for the network: of its memory little is known

    @property
    def train_s(self) -> float:
        """F + B + U of one mini-batch in all components, one after another, seconds."""
        return sum(component.train_s for component in self.components)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depths of the routes of inference, shallowest first."""
        return tuple(index + 1 for index, component in enumerate(self.components) if component.ends_route)

    def __hash__(self) -> int:
        """Of a few fields: to hash all of hundreds of components takes longer than what is cached by them."""
        return hash((self.source, self.batch_size, len(self.components), self.components[:1]))

    @cached_property
    def routes_above(self) -> tuple[int, ...]:
        """How many routes of inference end at each component or above it."""
        return tuple(accumulate(int(each.ends_route) for each in reversed(self.components)))[::-1]

    def route_parameters(self, depth: int) -> int | None:
        """Trainable parameters that the route of this depth uses: the effective ones; None if they were not counted.

        The others are affiliate: only training uses them (the division is that of T.-H. Lin's thesis, 2023).
        """
        along = [component.along_parameters for component in self.components[:depth]]
        if None in along:
            return None
        return sum(filter(None, along)) + self.components[depth - 1].turn_parameters

    def times(self, factor: float) -> Costs:
        """Costs whose computations take this many times as long."""
        components = tuple(
            replace(each, **{name: factor * getattr(each, name) for name in _COMPUTED}) for each in self.components
        )
        return replace(self, components=components)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
