"""Cuts by trial: what must travel where a model is cut after a step.

The whole model is recorded in training and in evaluation, on mini-batches of two sizes each. Then the part before the
cut runs, and the part after it with tensors without values. What its error, or its result, is made of travels; and
again, until the result has values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
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
from alray.models.imported.calls import first_line
from alray.models.imported.part import Cut, Part, PartRun, Seen, asked_by, packed, packed_shape, skeleton
from alray.models.imported.recording import Recording, Step, Touched
from alray.models.imported.steps import INPUT, POSITIONS, Gives, Key, Leaf, Sizes, fitted, name_of, order_of
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
_TRIALS = 20
"""Runs of the part after a cut, at most."""
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
    length = sample[0] if positions is None or not sample.is_text else positions
    samples = torch.randint(sample.whole_numbers, (count, length), generator=generator, dtype=sample.dtype)
    if sample.words is None:
        return samples, None
    lengths = torch.tensor([max(length - number * length // count, 1) for number in range(count)])
    mask = torch.arange(length) < lengths.unsqueeze(1)
    return samples.masked_fill(~mask, PADDING), mask


class Cutter:
    """A model that is cut, with what its recordings show."""

    def __init__(self, model: nn.Module, sample: Shape, *, frozen: Collection[str] = (), lowered: bool = False) -> None:
        """
        Args:
            model: a copy, whose buffers change.
            sample: the shape of one sample.
            frozen: paths of modules that compute as in evaluation.
            lowered: whether parts compute in mixed precision.
        """
        self._model, self._sample, self._frozen, self._lowered = model, sample, frozen, lowered
        self._cuts: dict[Key, Cut] = {}

    def _given(self, number: int) -> dict[Leaf, torch.Tensor]:
        """Samples of one of the two sizes, and the mask of a text."""
        positions = min(self._sample[0], _LONGEST) if self._sample.is_text else 1
        positions = max(positions - number * _SHORTER, 1)
        samples, mask = samples_of(self._sample, _SAMPLES[number], positions, torch.Generator().manual_seed(number))
        return {(INPUT, 0): samples} | ({} if mask is None else {(INPUT, 1): mask})

    def _sizes(self, number: int) -> tuple[int, int]:
        samples = self._given(number)[INPUT, 0]
        return samples.shape[0], samples.shape[1] if samples.ndim > 1 else 1

    @contextmanager
    def _mode(self, *, training: bool) -> Iterator[None]:
        """Within it the model trains, or not, with random numbers that are the same each time."""
        self._model.train(training)
        for path in self._frozen:
            self._model.get_submodule(path).eval()
        mixed = torch.autocast("cpu", torch.bfloat16) if self._lowered else nullcontext()
        with put_back(), torch.device("cpu"), torch.set_grad_enabled(training), mixed:
            seed_all(_CPU, 0, "cut")
            yield

    @cached_property
    def recordings(self) -> dict[bool, list[Recording]]:
        """By whether the model trains."""
        buffers = {name: each.detach().clone() for name, each in self._model.named_buffers()}
        found: dict[bool, list[Recording]] = {}
        self._changing = frozenset[str]()
        for training in (True, False):
            found[training] = []
            for number in range(len(_SAMPLES)):
                recording = Recording()
                with self._mode(training=training):
                    recording.run(self._model, self._given(number))
                if number > 0:
                    recording.keep_sizes()
                found[training].append(recording)
        changed = {name: each for name, each in self._model.named_buffers() if not torch.equal(each, buffers[name])}
        self._changing = frozenset(changed)
        for name, each in changed.items():
            each.data.copy_(buffers[name])
        return found

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of its copy of the model."""
        return self._model.parameters()

    @property
    def changing(self) -> frozenset[str]:
        """Names of the buffers that the model changes."""
        assert self.recordings
        return self._changing

    @cached_property
    def _known(self) -> dict[bool, Seen]:
        """What is known of all steps: those that could be fitted."""
        found = {}
        sizes = self._sizes(0), self._sizes(1)
        for training, runs in self.recordings.items():
            one, other = ({step.key: step.gives for step in run.steps} for run in runs)
            one[INPUT], other[INPUT] = (Gives.of([*self._given(number).values()]) for number in range(2))
            again = frozenset(step.key for step in runs[0].steps if step.again)
            fits = {
                key: fitted(gives, other[key], *sizes)
                for key, gives in one.items()
                if key in other and key not in again
            }
            found[training] = Seen({key: gives for key, gives in fits.items() if gives is not None}, again)
        return found

    def after(self, key: Key) -> Cut:
        """The cut after a step. Raises Refused."""
        if key not in self._cuts:
            self._cuts[key] = self._tried(key)
        return self._cuts[key]

    @cached_property
    def _result(self) -> Sizes | None:
        """The sizes of the result; None: they are not those of the mini-batch."""
        one, other = (Gives.of(each.result) for each in self.recordings[True])
        found = fitted(one, other, self._sizes(0), self._sizes(1))
        return None if found is None else found.leaves[0]

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of the result for one sample."""
        if self._result is None:
            return tuple(self.recordings[True][0].result.shape[1:])
        positions = self._sample[0] if self._sample.is_text else 1
        return tuple(size.at(1, positions) for size in self._result.sizes[1:])

    @property
    def rows_of_result(self) -> list[int]:
        """The dimensions of the result that grow with the mini-batch."""
        sizes = () if self._result is None else self._result.sizes
        return [axis for axis, size in enumerate(sizes) if size.by_samples]

    @property
    def writes_input(self) -> bool:
        """Whether the model changes the samples in place."""
        return any(each.writes_input for each in self.recordings[True])

    def _at_input(self) -> Cut:
        """The cut before all steps: samples pass."""
        samples = (INPUT, 0)
        seen = {
            mode: Seen({INPUT: known.gives[INPUT]}, travels=frozenset({samples})) for mode, known in self._known.items()
        }
        every = dict(self._model.named_parameters(remove_duplicate=False)).keys() | dict(
            self._model.named_buffers(remove_duplicate=False)
        )
        travels = {samples: self._known[True].sizes(samples)}
        return Cut(INPUT, travels, {}, seen, above=frozenset(every))

    def _tried(self, key: Key) -> Cut:
        if key == INPUT:
            return self._at_input()
        travels: dict[Leaf, Sizes] = {}
        reads: dict[Key, float] = {}
        seen: dict[bool, Seen] = {}
        clones: set[Leaf] = set()
        fixed: set[Leaf] = set()
        below: set[str] = set()
        above: set[str] = set()
        main = self._main(key)
        for training in (True, False):
            recording = self.recordings[training][0]
            end = next((step.ended for step in recording.steps if step.key == key), -1)
            if look := recording.look_before(key, end):
                raise Refused(look)
            before = {step.key for step in recording.steps[: end + 1]} | {INPUT}
            kept = {leaf: each for leaf, each in recording.values.items() if leaf[0] in before}
            if main not in kept:
                raise Refused("what is needed later is other in evaluation than in training")
            below |= {name for name, first in recording.used.items() if first <= end}
            leaves = {main: None} | dict.fromkeys(leaf for leaf in travels if leaf in kept)
            run, leaves, same = self._above(key, kept, leaves, above, clones, training=training)
            known = self._known[training]
            if kept[main].ndim > 2:  # [N, T, ...]
                leaves.pop((INPUT, 1), None)  # the mask of a text goes along with each sequence
            every = [size for leaf in leaves for size in known.sizes(leaf).sizes]
            if self._sample.is_text and not any(size.by_positions for size in every):
                reads[POSITIONS] = float(self._sizes(0)[1])
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
        names = dict(self._model.named_parameters(remove_duplicate=False))
        looks = self.recordings[True][0].looks
        unused = names.keys() - below - above
        if looks and unused:  # another value may lead to where they are used
            raise Refused(f"a value that `forward` reads{looks[0][2]} decides whether it uses `{min(unused)}`")
        for name in sorted(below & above & names.keys()):
            raise Refused(f"the parts before and after it share the parameter `{name}`")
        changed = below & above & self.changing
        if changed:
            raise Refused(f"the buffer `{min(changed)}`, which changes, is used before and after it")
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
        recording, found = self.recordings[True][0], dict[Leaf, tuple[int, ...]]()

        def note(gradient: torch.Tensor, leaf: Leaf) -> None:
            order = order_of(Form.of(gradient))
            if order != tuple(range(gradient.ndim)):
                found[leaf] = order

        hooks = [
            value.register_hook(partial(note, leaf=leaf))
            for leaf, value in recording.values.items()
            if value.requires_grad
        ]
        trained = [each for each in self._model.parameters() if each.requires_grad]
        try:
            with self._mode(training=True), self._unchanged():
                torch.autograd.backward(recording.result.sum(), inputs=trained)
        except FAULTS_OF_USER_CODE:
            return {}  # the proof of a cut runs it again, and says what is wrong
        finally:
            for hook in hooks:
                hook.remove()
            self._model.zero_grad()
        return found

    def _main(self, key: Key) -> Leaf:
        """The first tensor of numbers that a step gives, with a row for each sample."""
        gives = self._known[True].gives.get(key)
        for number, leaf in enumerate(() if gives is None else gives.leaves):
            if isinstance(leaf, Sizes) and leaf.dtype.is_floating_point and leaf.rows is not None:
                return key, number
        raise Refused("it gives no tensor with a row for each sample")

    def _above(
        self,
        key: Key,
        kept: Mapping[Leaf, torch.Tensor],
        leaves: dict[Leaf, None],
        used: set[str],
        clones: set[Leaf],
        *,
        training: bool,
    ) -> tuple[PartRun, dict[Leaf, None], dict[Leaf, Leaf]]:
        """A run of the part after a cut that gives the result, the tensors that it needs for that, and those that are
        the same as one of these. What comes has values only where it cannot be run without them, which takes less time
        for a large model."""
        known, same = self._known[training], dict[Leaf, Leaf]()
        with_values = False
        for _ in range(_TRIALS):
            came = {leaf: _copied(kept[leaf], values=with_values) for leaf in leaves}
            came |= {leaf: came[other] for leaf, other in same.items()}
            sizes = {leaf: known.sizes(leaf) for leaf in leaves}
            given = Cut(key, sizes, {}, {training: known})
            numbers = self.recordings[training][0].reads
            like = torch.empty((), device=_CPU)
            run = PartRun(given, None, came, training=training, sizes=self._sizes(0), read=numbers, like=like)
            versions = {leaf: each._version for leaf, each in came.items()}
            names: set[str] = set()
            touched = Touched(self._model, partial(_note_own, run, names))
            try:
                with self._mode(training=training), self._unchanged(), touched:
                    run.of(self._model)
            except LostError as error:
                further = [leaf for leaf in sorted(kept.keys() & error.origins, key=str) if leaf not in came]
                if not further and with_values:
                    raise Refused(reason_of(error)) from error
                with_values = with_values or not further
                for leaf in further:
                    if alike := next((each for each in leaves if kept[each] is kept[leaf]), None):
                        same[leaf] = alike
                    else:
                        leaves = {**leaves, leaf: None}
                continue
            except FAULTS_OF_USER_CODE as error:
                if with_values:
                    raise Refused(f"`forward` fails there: {first_line(error)}") from error
                with_values = True
                continue
            used |= names
            clones |= {leaf for leaf, each in came.items() if each._version != versions[leaf]}
            return run, leaves, same
        raise Refused("more tensors would be needed later than can travel")

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Buffers are put back at its end."""
        changing = self.changing
        before = {name: each.detach().clone() for name, each in self._model.named_buffers() if name in changing}
        try:
            yield
        finally:
            for name, each in self._model.named_buffers():
                if name in before:
                    each.data.copy_(before[name])

    def part(self, model: nn.Module, after: Cut, until: Cut | None, title: str, *, shared: bool = False) -> Part:
        """The part of a model between two cuts.

        Args:
            model: the one that was cut, or a copy.
            title: of the model, in errors.
            shared: whether it has the parameters of `model`, and no copies.
        """
        parameters = dict(model.named_parameters(remove_duplicate=False))
        buffers = dict(model.named_buffers(remove_duplicate=False)).keys()
        every = parameters.keys() | buffers
        inner = [cut for cut in (after, until) if cut is not None and cut.key != INPUT]
        used = frozenset[str]().union(*(cut.below | cut.above for cut in inner))
        own = after.above & (every if until is None else until.below)
        if inner:
            own |= {name for name in buffers - used if self._goes_along(name, own, used, after)}
        kept = {id(each): each for name, each in parameters.items() if shared and name in own}
        made = skeleton(model, own, self.changing, kept)
        paths = [path for path, _ in model.named_modules() if path]
        hidden = [path for path in paths if _lie_in(path, every) and not _lie_in(path, own)]
        reads = {training: recordings[0].reads for training, recordings in self.recordings.items()}
        longest = self._sample[0]
        return Part(made, after, until, title=title, longest=longest, reads=reads, hidden=hidden, frozen=self._frozen)

    @staticmethod
    def _goes_along(buffer: str, own: Collection[str], used: Collection[str], after: Cut) -> bool:
        """Whether a part has a buffer that nothing uses: with the other tensors of its module, else the first part."""
        around = buffer.rpartition(".")[0]
        beside = {name for name in used if name.rpartition(".")[0] == around}
        return not beside.isdisjoint(own) if beside else after.key == INPUT

    def has_rows(self, key: Key) -> bool:
        """Whether a step gives a tensor of numbers with a row for each sample."""
        try:
            self._main(key)
        except Refused:
            return False
        return True

    @cached_property
    def _of_equal_samples(self) -> Recording:
        """An evaluation of the first mini-batch, whose last sample is the first one again."""
        recording = Recording()
        came = self._given(0)
        for each in came.values():
            each[-1] = each[0]
        with self._mode(training=False), self._unchanged():
            recording.run(self._model, came)
        return recording

    def keeps_rows(self, key: Key) -> bool:
        """Whether a readout can take what a step gives: several rows of a sample follow each other, and those of the
        others do not depend on it."""
        leaf = self._main(key)
        sizes = self._known[True].sizes(leaf)
        if not sizes.has_several_rows:
            return True
        values = (each.values.get(leaf) for each in (self.recordings[False][0], self._of_equal_samples))
        one, other = (None if each is None else packed(each, sizes, self._sizes(0)[0])[:-1] for each in values)
        return one is not None and other is not None and torch.equal(one, other)

    def _shape(self, key: Key) -> tuple[int, ...]:
        """Of two samples, of what a step gives."""
        sizes = self._known[True].sizes(self._main(key)).sizes
        return tuple(size.at(*self._sizes(0)) for size in sizes)

    def elements(self, key: Key) -> int:
        """How large that tensor is, for two samples."""
        return math.prod(self._shape(key))

    def dimensions(self, key: Key) -> int:
        return len(self._shape(key))

    @property
    def steps(self) -> list[Step]:
        """Those of a run in training, in the order in which they end."""
        return self.recordings[True][0].steps


def _copied(tensor: torch.Tensor, *, values: bool) -> torch.Tensor:
    return tensor.detach().clone() if values else Unused.like(Form.of(tensor), (), _CPU)


def _note_own(run: PartRun, names: set[str], name: str) -> None:
    if run.own:
        names.add(name)


def _lie_in(path: str, names: Collection[str]) -> bool:
    """Whether one of these parameters and buffers does."""
    return any(name.startswith(f"{path}.") for name in names)


def _named(leaf: Leaf) -> str:
    key, number = leaf
    name = "its samples" if key == INPUT else f"`{name_of(key)}`"
    return name if not number else f"tensor {number + 1} of {name}"


def reason_of(error: LostError) -> str:
    """Why a model cannot be cut where this is raised, and in which line of a user's code."""
    place = own_problem(error, "")
    line = "" if place is None else f" (line {place.line} of {Path(str(place.file)).name})"
    return f"`forward` {asked_by(error)}{line}"
