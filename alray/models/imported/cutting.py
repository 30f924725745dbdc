"""Cuts by trial: what must travel where a model is cut after a step.

The whole model is recorded in training and in evaluation, on mini-batches of two sizes each. Then the part before the
cut runs, and the part after it with tensors without values. What its error, or its result, is made of travels; and
again, until the result has values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from alray.config.user_code import own_problem
from alray.core.errors import FAULTS_OF_USER_CODE
from alray.core.randomness.generators import put_back, seed_all
from alray.models.imported.absent import Form, LostError, Unused
from alray.models.imported.calls import buffers_of, first_line
from alray.models.imported.part import Cut, Part, PartRun, Seen, asked_by, packed, packed_shape, skeleton
from alray.models.imported.recording import Recording, Step, Touched
from alray.models.imported.steps import INPUT, POSITIONS, RESULT, Gives, Key, Leaf, Sizes, fitted, name_of, order_of
from alray.models.readout import Pooling
from alray.models.shape import Shape
from alray.models.token_embedding import PADDING

_LONGEST = 16
"""Positions of the recorded samples, at most: nothing that is found depends on more."""
_SHORTER = 3
"""By how many positions those of the second mini-batch are shorter."""
_SAMPLES = (2, 3)
_MOST_TENSORS = 6
"""How many may travel: a message carries two more, such as labels and a mask."""
_CPU = torch.device("cpu")


class Refused(Exception):
    """A model cannot be cut there. The text says why: it follows "after `layer`, "."""


def samples_of(
    sample: Shape, count: int, positions: int | None, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Random samples, and of documents the mask of their words: each but the first is shorter than the one before.

    Args:
        positions: of texts; None: as many as a sample has.
    """
    if sample.several is not None:
        return sample.several.noise(count, generator), None
    if sample.whole_numbers is None:
        return torch.randn((count, *sample), generator=generator, dtype=sample.dtype), None
    length = positions or sample[0]
    samples = torch.randint(sample.whole_numbers, (count, length), generator=generator, dtype=sample.dtype)
    if sample.words is None:
        return samples, None
    lengths = torch.tensor([max(length - number * length // count, 1) for number in range(count)])
    mask = torch.arange(length) < lengths.unsqueeze(1)
    return samples.masked_fill(~mask, PADDING), mask


class Cutter:
    """A model that is cut, with what its recordings show.

    Attributes:
        model: a copy, whose buffers are put back.
        recordings: of a mini-batch, by whether the model trains.
        changing: names of the buffers that the model changes.
    """

    def __init__(self, model: nn.Module, sample: Shape, *, frozen: Collection[str] = (), lowered: bool = False) -> None:
        """
        Args:
            model: a copy, whose buffers change.
            sample: the shape of one sample.
            frozen: paths of modules that compute as in evaluation.
            lowered: whether parts compute in mixed precision.
        """
        self.model, self._sample, self._frozen, self._lowered = model, sample, frozen, lowered
        self._cuts: dict[Key, Cut] = {}
        self._parameters = frozenset(dict(model.named_parameters(remove_duplicate=False)))
        self._buffers = frozenset(dict(model.named_buffers(remove_duplicate=False)))
        longest = min(sample[0], _LONGEST)
        self._sizes = [
            (count, max(longest - number * _SHORTER, 1) if sample.is_text else sample[0])
            for number, count in enumerate(_SAMPLES)
        ]
        self.recordings: dict[bool, Recording] = {}
        self._known: dict[bool, Seen] = {}
        self.changing = frozenset[str]()
        before = buffers_of((model,))
        for training in (True, False):
            self.recordings[training], self._known[training] = self._recorded(training=training)
        self.changing = frozenset(name for name, each in model.named_buffers() if not torch.equal(each, before[name]))
        self._put({name: before[name] for name in self.changing})

    def _given(self, number: int) -> dict[Leaf, torch.Tensor]:
        """Samples of one of the two sizes, and the mask of a text."""
        samples, mask = samples_of(self._sample, *self._sizes[number], torch.Generator().manual_seed(number))
        return {(INPUT, 0): samples} | ({} if mask is None else {(INPUT, 1): mask})

    @contextmanager
    def _mode(self, *, training: bool) -> Iterator[None]:
        """Within it the model trains, or not, with random numbers that are the same each time. Buffers that are known
        to change are put back at its end."""
        before = {name: each for name, each in buffers_of((self.model,)).items() if name in self.changing}
        self.model.train(training)
        for path in self._frozen:
            self.model.get_submodule(path).eval()
        mixed = torch.autocast("cpu", torch.bfloat16) if self._lowered else nullcontext()
        try:
            with put_back(), torch.device("cpu"), torch.set_grad_enabled(training), mixed:
                seed_all(_CPU, 0, "cut")
                yield
        finally:
            self._put(before)

    def _put(self, buffers: Mapping[str, torch.Tensor]) -> None:
        """Give buffers these values, by name."""
        for name, each in self.model.named_buffers():
            if name in buffers:
                each.data.copy_(buffers[name])

    def _recorded(self, *, training: bool) -> tuple[Recording, Seen]:
        """A recording of the first mini-batch, and what it and the second one show of all steps and of the result:
        those that could be fitted."""
        runs, gave = [Recording() for _ in _SAMPLES], list[dict[Key, Gives]]()
        for number, run in enumerate(runs):
            with self._mode(training=training):
                given = self._given(number)
                run.run(self.model, given)
            scores = run.result if isinstance(run.result, torch.Tensor) else None  # which is refused
            ends = {INPUT: Gives.of([*given.values()]), RESULT: Gives.of(scores)}
            gave.append({step.key: step.gives for step in run.steps} | ends)
        one, other = gave
        again = frozenset(step.key for step in runs[0].steps if step.again)
        fits = {key: fitted(one[key], other[key], *self._sizes) for key in one if key in other and key not in again}
        return runs[0], Seen({key: gives for key, gives in fits.items() if gives is not None}, again)

    def after(self, key: Key) -> Cut:
        """The cut after a step. Raises Refused."""
        if key not in self._cuts:
            self._cuts[key] = self._at_input() if key == INPUT else self._tried(key)
        return self._cuts[key]

    @property
    def _result(self) -> Sizes | None:
        """The sizes of the result; None: they are not those of the mini-batch."""
        found = self._known[True].gives.get(RESULT)
        return None if found is None else found.leaves[0]

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of the result for one sample."""
        if self._result is None:
            return tuple(self.recordings[True].result.shape[1:])
        return tuple(size.at(1, self._sample[0]) for size in self._result.sizes[1:])

    @property
    def rows_of_result(self) -> list[int]:
        """The dimensions of the result that grow with the mini-batch."""
        sizes = () if self._result is None else self._result.sizes
        return [axis for axis, size in enumerate(sizes) if size.by_samples]

    def _at_input(self) -> Cut:
        """The cut before all steps: samples pass."""
        samples = (INPUT, 0)
        seen = {
            mode: Seen({INPUT: known.gives[INPUT]}, travels=frozenset({samples})) for mode, known in self._known.items()
        }
        travels = {samples: self._known[True].sizes(samples)}
        return Cut(INPUT, travels, {}, seen, above=self._parameters | self._buffers)

    def _tried(self, key: Key) -> Cut:
        travels: dict[Leaf, Sizes] = {}
        reads: dict[Key, float] = {}
        seen: dict[bool, Seen] = {}
        clones: set[Leaf] = set()
        fixed: set[Leaf] = set()
        below: set[str] = set()
        above: set[str] = set()
        if key not in self.main:
            raise Refused("it gives no tensor with a row for each sample")
        main = self.main[key]
        for training in (True, False):
            recording, known = self.recordings[training], self._known[training]
            end = next((step.ended for step in recording.steps if step.key == key), -1)
            if look := recording.look_before(key, end):
                raise Refused(look)
            before = {step.key for step in recording.steps[: end + 1]} | {INPUT}
            kept = {leaf: each for leaf, each in recording.values.items() if leaf[0] in before}
            if main not in kept:
                raise Refused("what is needed later is other in evaluation than in training")
            below |= {name for name, first in recording.used.items() if first <= end}
            leaves = {main: None} | dict.fromkeys(leaf for leaf in travels if leaf in kept)
            run, leaves, same, written = self._above(key, kept, leaves, training=training)
            above |= run.used
            clones |= written
            if kept[main].ndim > 2:  # [N, T, ...]
                leaves.pop((INPUT, 1), None)  # the mask of a text goes along with each sequence
            every = [size for leaf in leaves for size in known.sizes(leaf).sizes]
            if self._sample.is_text and not any(size.by_positions for size in every):
                reads[POSITIONS] = float(self._sizes[0][1])
            for leaf in leaves:
                sizes = known.sizes(leaf)
                if sizes.rows is None:
                    raise Refused(f"{_named(leaf)} is needed, which has no row for each sample")
                if travels.setdefault(leaf, sizes) != sizes:
                    raise Refused(f"{_named(leaf)} has other sizes in evaluation than in training")
            if len(travels) + bool(reads) > _MOST_TENSORS:
                further = f"{_named(leaf)} is one of {len(travels)} tensors that are needed later"
                raise Refused(f"{further}, of which {_MOST_TENSORS} at most can travel")
            if training:
                fixed = {leaf for leaf in (*leaves, *same) if not kept[leaf].requires_grad}
            numbers = recording.reads
            reads |= {each: float(numbers[each]) for each in run.asked if each in numbers and each in before}
            asked = {each: known.gives[each] for each in (INPUT, *run.asked) if each in known.gives}
            seen[training] = Seen(asked, frozenset(run.again), frozenset(leaves), same)
        looks, unused = self.recordings[True].looks, self._parameters - below - above
        if looks and unused:  # another value may lead to where they are used
            raise Refused(f"a value that `forward` reads{looks[0][2]} decides whether it uses `{min(unused)}`")
        if shared := below & above & self._parameters:
            raise Refused(f"the parts before and after it share the parameter `{min(shared)}`")
        if changed := below & above & self.changing:
            raise Refused(f"the buffer `{min(changed)}`, which changes, is used before and after it")
        for name in self._buffers - below - above:  # unused: with the other tensors of its module, or before it
            goes_along = any(each.rpartition(".")[0] == name.rpartition(".")[0] for each in above)
            (above if goes_along else below).add(name)
        return Cut(
            key,
            travels,
            reads,
            seen,
            frozenset(clones),
            frozenset(fixed),
            frozenset(below),
            frozenset(above),
            self._pooling(travels[main]),
            {leaf: self._gradients[leaf] for leaf in travels if leaf in self._gradients},
        )

    def _pooling(self, sizes: Sizes) -> Pooling:
        """How a readout reads a tensor: maps have their channels last if their first two sizes are as those of the
        picture to each other, and the last two are not."""
        shape = packed_shape(sizes, 1)
        if len(shape) != 3 or len(self._sample) != 3:
            return "mean"
        height, width = self._sample[1:]
        is_map = [one * width == other * height for one, other in pairwise(shape)]
        return "channels_last" if is_map == [True, False] else "mean"

    @cached_property
    def _gradients(self) -> dict[Leaf, tuple[int, ...]]:
        """The memory layouts of the gradients of what steps give, where they are not row-major: see `Cut`. One backward
        pass of the recording shows them."""
        recording, found = self.recordings[True], dict[Leaf, tuple[int, ...]]()

        def note(gradient: torch.Tensor, leaf: Leaf) -> None:
            order = order_of(Form.of(gradient))
            if order != tuple(range(gradient.ndim)):
                found[leaf] = order

        hooks = [
            value.register_hook(partial(note, leaf=leaf))
            for leaf, value in recording.values.items()
            if value.requires_grad
        ]
        trained = [each for each in self.model.parameters() if each.requires_grad]
        try:
            with self._mode(training=True):
                torch.autograd.backward(recording.result.sum(), inputs=trained)
        except FAULTS_OF_USER_CODE:
            return {}  # the proof of a cut runs it again, and says what is wrong
        finally:
            for hook in hooks:
                hook.remove()
            self.model.zero_grad()
        return found

    @cached_property
    def main(self) -> dict[Key, Leaf]:
        """By step the first tensor of numbers that it gives, with a row for each sample, if there is one."""
        return {
            key: (key, number)
            for key, gives in self._known[True].gives.items()
            for number, leaf in reversed([*enumerate(gives.leaves)])
            if isinstance(leaf, Sizes) and leaf.dtype.is_floating_point and leaf.rows is not None
        }

    def _above(
        self, key: Key, kept: Mapping[Leaf, torch.Tensor], leaves: dict[Leaf, None], *, training: bool
    ) -> tuple[PartRun, dict[Leaf, None], dict[Leaf, Leaf], set[Leaf]]:
        """A run of the part after a cut that gives the result, the tensors that it needs for that, those that are the
        same as one of these, and those that it writes. What comes has values only where it cannot be run without them,
        which takes less time for a large model."""
        known, same = self._known[training], dict[Leaf, Leaf]()
        with_values = False
        while len(leaves) <= _MOST_TENSORS + 1:  # the mask of a text may go along with a sequence
            came = {
                leaf: kept[leaf].detach().clone() if with_values else Unused.like(Form.of(kept[leaf]), (), _CPU)
                for leaf in leaves
            }
            came |= {leaf: came[other] for leaf, other in same.items()}
            sizes = {leaf: known.sizes(leaf) for leaf in leaves}
            given = Cut(key, sizes, {}, {training: known})
            numbers = self.recordings[training].reads
            like = torch.empty((), device=_CPU)
            run = PartRun(given, None, came, training=training, sizes=self._sizes[0], read=numbers, like=like)
            versions = {leaf: each._version for leaf, each in came.items()}
            try:
                with self._mode(training=training), Touched(self.model, run.note_used):
                    run.of(self.model)
            except FAULTS_OF_USER_CODE as error:
                lost = error.origins if isinstance(error, LostError) else frozenset()
                further = [leaf for leaf in sorted(kept.keys() & lost, key=str) if leaf not in came]
                if not further and with_values:
                    raise Refused(reason_of(error)) from error
                with_values = with_values or not further
                for leaf in further:
                    if alike := next((each for each in leaves if kept[each] is kept[leaf]), None):
                        same[leaf] = alike
                    else:
                        leaves = {**leaves, leaf: None}
                continue
            return run, leaves, same, {leaf for leaf, each in came.items() if each._version != versions[leaf]}
        raise Refused("more tensors would be needed later than can travel")

    def part(self, model: nn.Module, after: Cut, until: Cut | None, title: str, *, shared: bool = False) -> Part:
        """The part of a model between two cuts.

        Args:
            model: the one that was cut, or a copy.
            title: of the model, in errors.
            shared: whether it has the parameters of `model`, and no copies.
        """
        own = after.above if until is None else after.above & until.below
        parameters = model.named_parameters(remove_duplicate=False)
        kept = {id(each): each for name, each in parameters if shared and name in own}
        made = skeleton(model, own, (self._parameters | self.changing) - own, kept)
        hidden = _paths_around(self._parameters | self._buffers) - _paths_around(own)
        reads = {training: recording.reads for training, recording in self.recordings.items()}
        return Part(made, after, until, title=title, reads=reads, hidden=hidden, frozen=self._frozen)

    @cached_property
    def _of_equal_samples(self) -> Recording:
        """An evaluation of the first mini-batch, whose last sample is the first one again."""
        recording = Recording()
        came = self._given(0)
        for each in came.values():
            each[-1] = each[0]
        with self._mode(training=False):
            recording.run(self.model, came)
        return recording

    def keeps_rows(self, key: Key) -> bool:
        """Whether a readout can take what a step gives: several rows of a sample follow each other, and those of the
        others do not depend on it."""
        leaf = self.main[key]
        sizes = self._known[True].sizes(leaf)
        if not sizes.has_several_rows:
            return True
        values = (each.values.get(leaf) for each in (self.recordings[False], self._of_equal_samples))
        one, other = (None if each is None else packed(each, sizes, self._sizes[0][0])[:-1] for each in values)
        return one is not None and other is not None and torch.equal(one, other)

    def shape(self, key: Key) -> tuple[int, ...]:
        """Of two samples, of that tensor of a step."""
        return tuple(size.at(*self._sizes[0]) for size in self._known[True].sizes(self.main[key]).sizes)

    @property
    def steps(self) -> list[Step]:
        """Those of a run in training, in the order in which they end."""
        return self.recordings[True].steps


def _paths_around(names: Iterable[str]) -> set[str]:
    """Paths of the modules that these parameters and buffers lie in."""
    return {name[:end] for name in names for end, letter in enumerate(name) if letter == "."}


def _named(leaf: Leaf) -> str:
    key, number = leaf
    name = "its samples" if key == INPUT else f"`{name_of(key)}`"
    return name if not number else f"tensor {number + 1} of {name}"


def reason_of(error: BaseException) -> str:
    """Why a model cannot be cut where its part raises this, and in which line of a user's code."""
    lost = error.__cause__ if isinstance(error.__cause__, LostError) else error
    if not isinstance(lost, LostError):
        return f"`forward` fails there: {first_line(error)}"
    place = own_problem(lost, "")
    line = "" if place is None else f" (line {place.line} of {Path(str(place.file)).name})"
    return f"`forward` {asked_by(lost)}{line}"
