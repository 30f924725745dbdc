"""The mini-batches of a run.

A mini-batch, with its augmentation and with what a user's code draws in reading its samples, depends only on (seed,
epoch, position). So a run gets the same bits whatever the step at which it starts and whatever the number of loader
workers.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from alray.config.sections.data import Mix
from alray.core.accelerator import pinning
from alray.core.compat import loader_signals
from alray.core.errors import AlrayError, DataError, ProcessLost, SystemFault, UserCodeError
from alray.core.import_path import children_import_safely
from alray.core.randomness.generators import generator
from alray.core.signal_mask import blocked
from alray.data.augment import Mixture, strong
from alray.data.class_weights import weighted
from alray.data.dataset import Dataset
from alray.data.split import Augment
from alray.data.worker_names import use_names_of_owner
from alray.data.worker_process import WorkerContext
from alray.planning.prediction.shares import rows_of, shares_of_part

_WORKER_GONE = ("DataLoader worker (pid", "Pin memory thread exited unexpectedly")
"""What torch's messages have where it misses a worker. The thread that pins mini-batches, as for a GPU, reads what a
worker sent, and ends with an error there."""
_GONE_S = 5.0
"""So long a process that was killed may take until it is gone, when its connections have ended."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One mini-batch.

    Attributes:
        step: its number from 0, counted over the whole run in training and over the split in evaluation.
        samples: [N, ...] float32, or [N, T] int64 word numbers for text, in default strides.
        labels: [N] int64.
        mask: [N, T] bool, true where a document has a word; None if the samples are not text.
    """

    step: int
    samples: Tensor
    labels: Tensor
    mask: Tensor | None = None

    def inputs(self, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return the inputs of the first component on `device`: `s` and, if there is one, `mask`.

        Floating-point samples are converted to `dtype`. Integers (word numbers) stay integers. The copy of a pinned
        batch to a GPU continues in the current stream after this method has returned.
        """
        inputs = {"s": _on(device, self.samples, dtype)}
        if self.mask is not None:
            inputs["mask"] = self.mask.to(device, non_blocking=True)
        return inputs

    def with_labels(self, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        """As `inputs`, with `labels`, which are converted as samples are."""
        return {**self.inputs(device, dtype), "labels": _on(device, self.labels, dtype)}

    def pin_memory(self) -> Batch | AlrayError:
        """The same mini-batch in pinned memory, from which a GPU copies by itself, or why there is none. The loader
        calls this in a thread of its own, out of which torch raises errors with the traceback as their message."""
        try:
            with pinning():
                mask = None if self.mask is None else self.mask.pin_memory()
                return Batch(self.step, self.samples.pin_memory(), self.labels.pin_memory(), mask)
        except SystemFault as fault:
            return fault


def _on(device: torch.device, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor on a device: floating-point numbers in this type, integers as they are."""
    return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype, non_blocking=True)


class TrainBatches:
    """Iterates over the mini-batches start_step, ..., end_step - 1 of a run, across epochs.

    Global random numbers are used by a user's code only, and put back. Workers ignore SIGINT, because the run handles
    Ctrl-C. `next` raises DataError for an error in the data, and UserCodeError for one in a user's code, with and
    without workers, and ProcessLost within five seconds of the end of a worker that was killed. The workers end after
    the last batch, in `close`, or at the end of a `with` block.
    """

    def __init__(
        self,
        data: Dataset,
        *,
        seed: int,
        start_step: int,
        end_step: int,
        workers: int,
        dtype: torch.dtype = torch.float32,
        shares: Sequence[int] = (),
        replica: int = 0,
        pinned: bool = False,
    ) -> None:
        """
        Args:
            workers: number of processes that prepare batches in advance. With 0, `next` prepares the batch.
            dtype: in which samples and labels are mixed (`data.mix`).
            pinned: whether the batches lie in pinned memory, which only a process that sees a GPU has.
            shares: number of samples of a mini-batch for each replica; the batches then hold the samples of `replica`.
                Empty: the batches hold all samples.
        """
        self._items = _MiniBatches(data, seed, tuple(shares) or (data.section.batch_size,), replica, dtype)
        self._step = start_step  # of the mini-batch that `next` gives
        loader = DataLoader(
            self._items,
            batch_size=None,  # an item of `_MiniBatches` is a whole mini-batch
            sampler=range(start_step, end_step),
            collate_fn=_as_it_is,
            num_workers=workers,
            pin_memory=pinned,
            # A fork would copy a process with threads of torch and Ray. A spawned process starts clean.
            multiprocessing_context=WorkerContext() if workers else None,
            # The same thread count as here, because the bits of a large reduction depend on it.
            worker_init_fn=partial(_begin_worker, torch.get_num_threads()) if workers else None,
            generator=torch.Generator(),  # else the loader draws from the global one
        )
        self._batches: Iterator[Batch | AlrayError] | None
        self._batches = _start_workers(loader) if workers else iter(loader)
        self._has_workers = workers > 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if self._batches is None:
            raise StopIteration
        item = self._following(self._batches)
        if isinstance(item, AlrayError):
            self.close()
            raise item
        self._step += 1
        return item

    @property
    def awaited(self) -> str:
        """The mini-batch that `next` waits for, for another thread; of workers with its samples, of which one is
        read."""
        named = f"mini-batch {self._step + 1}"
        return f"{named}, with {self._items.named(self._step)}" if self._has_workers else named

    def _following(self, batches: Iterator[Batch | AlrayError]) -> Batch | AlrayError:
        try:
            return next(batches)
        except (RuntimeError, ConnectionError, EOFError, FileNotFoundError) as error:
            # What torch says of a worker that it misses, or what comes of reading a tensor that one shared.
            tells = not isinstance(error, RuntimeError) or any(text in str(error) for text in _WORKER_GONE)
            if not self._has_workers or not tells:
                raise
            raise ProcessLost(
                "a process that prepares mini-batches ended: it was killed, or the code of the source ended it",
                key="data.workers",
                hint="lower data.workers if memory ran out",
            ) from error

    def close(self) -> None:
        """End the workers and wait for them. No batches follow. A second call does nothing."""
        self._batches = None  # the loader's iterator ends its workers when it is deleted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EvaluationBatches:
    """Iterates over the mini-batches of a split in order, without augmentation, including the last partial one."""

    def __init__(self, data: Dataset, split: str) -> None:
        """
        Args:
            split: "train", "validation" or "test".

        Raises:
            DataError: if the data has no such split.
        """
        chosen = data.splits[split]
        if chosen is None:
            hint = "set data.validation_fraction" if split == "validation" else "give the source a test set"
            raise DataError(f"there is no {split} split", key="data", hint=hint)
        self._split = chosen
        self._batch_size = data.section.batch_size

    def __len__(self) -> int:
        return -(-len(self._split) // self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for step in range(len(self)):
            first = step * self._batch_size
            positions = range(first, min(first + self._batch_size, len(self._split)))
            samples, labels = self._split.take(positions)
            yield Batch(step, samples, labels, self._split.mask(samples))


def check_samples(data: Dataset, *, seed: int, workers: int) -> None:
    """Read the first mini-batches of the run and of each evaluation; of a user's source, every sample.

    Raises DataError or UserCodeError for the first one that is wrong, as the run would.
    """
    with TrainBatches(data, seed=seed, start_step=0, end_step=1, workers=workers) as batches:
        next(batches)
    for name, split in data.splits.items():
        if split is None:
            continue
        for _ in EvaluationBatches(data, name):
            if not data.own:
                break


class _MiniBatches(TorchDataset[Any]):
    """Item k is mini-batch k of the run, or the error that occurred while it was read.

    The error is returned as a value: if a worker raised it, the loader would turn it into text with a traceback.
    """

    def __init__(self, data: Dataset, seed: int, shares: tuple[int, ...], replica: int, dtype: torch.dtype) -> None:
        self._shares = shares
        self._replica = replica
        self._split = data.train
        self._batch_size = data.section.batch_size
        self._steps_per_epoch = data.steps_per_epoch
        self._augment = data.section.augment
        self._mix = data.section.mix
        self._labels = data.labels
        self._task = data.task
        self._class_weights = data.class_weights
        self._dtype = dtype
        self._seed = seed
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    def __getitem__(self, step: int) -> Batch | AlrayError:
        epoch, position = divmod(step, self._steps_per_epoch)
        whole, own = self._rows(epoch, position)
        try:
            samples, labels = self._taken(epoch, position, whole, own)
            if self._mix is not None:
                samples, labels = self._mixed(epoch, position, whole, own, samples, labels, self._mix)
            if self._class_weights is not None:
                of_all = labels if len(labels) == len(whole) else self._labels_at(whole)
                labels = weighted(labels, of_all, self._class_weights)
        except (DataError, UserCodeError) as error:
            return error
        return Batch(step, samples, self._task.in_training(labels), self._split.mask(samples))

    def named(self, step: int) -> str:
        """The samples of mini-batch `step` that this replica has, as messages name them."""
        whole, own = self._rows(*divmod(step, self._steps_per_epoch))
        return self._split.named(whole[own])

    def _rows(self, epoch: int, position: int) -> tuple[Tensor, slice]:
        """The positions of a mini-batch's samples in the split, and which of them this replica has."""
        whole = self._epoch_order(epoch)[position * self._batch_size : (position + 1) * self._batch_size]
        return whole, rows_of(shares_of_part(self._shares, len(whole)), self._replica)

    def _taken(self, epoch: int, position: int, whole: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """Samples and labels of some rows of mini-batch `position` of an epoch.

        Args:
            whole: the positions of the mini-batch's samples in the split.
        """
        first = position * self._batch_size + rows.start
        return self._split.take(whole[rows], self._augmentation(epoch, first), (epoch, first))

    def _mixed(
        self, epoch: int, position: int, whole: Tensor, own: slice, samples: Tensor, labels: Tensor, mix: Mix
    ) -> tuple[Tensor, Tensor]:
        """The rows of this replica, each mixed with the row before it; the first row of all with the last one."""
        samples = samples.to(self._dtype)
        if not len(samples):
            return samples, torch.empty(0, len(self._split.classes), dtype=self._dtype)
        before = (own.start - 1) % len(whole)
        if before == own.stop - 1:
            others, other_labels = samples[-1:], labels[-1:]
        else:
            others, other_labels = self._taken(epoch, position, whole, slice(before, before + 1))
            others = others.to(self._dtype)
        others, other_labels = torch.cat([others, samples[:-1]]), torch.cat([other_labels, labels[:-1]])
        mixture = Mixture.drawn(mix, tuple(samples.shape[1:]), seed=self._seed, epoch=epoch, position=position)
        classes = len(self._split.classes)
        return mixture.samples(samples, others), mixture.labels(labels, other_labels, classes, self._dtype)

    def _labels_at(self, positions: Tensor) -> Tensor:
        """The classes of samples of the split that are not read."""
        assert self._labels is not None, "replicas weigh classes that are known"
        return self._labels[positions]

    def _augmentation(self, epoch: int, first: int) -> Augment | None:
        """Return the augmentation of the mini-batch whose first sample is number `first` of the epoch."""
        if self._augment == "none":
            return None
        return lambda image, row: strong(image, generator(self._seed, "augment", epoch, first + row))

    def _epoch_order(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            self._order = torch.randperm(len(self._split), generator=generator(self._seed, "order", epoch))
            self._epoch = epoch
        return self._order


def _start_workers(loader: DataLoader[Any]) -> Iterator[Batch | AlrayError]:
    use_names_of_owner()
    try:
        # Workers inherit the signal mask, so that Ctrl-C cannot end a worker before it reaches `_begin_worker`.
        with blocked(signal.SIGINT), children_import_safely():
            started = iter(loader)
        # A handler of SIGCHLD that torch may have in this process, of a loader of the user, would raise an error for
        # these workers in the middle of the main thread. `TrainBatches` finds out by itself that one is gone.
        loader_signals._remove_worker_pids(id(started))
        started._worker_pids_set = False  # type: ignore[attr-defined]
        return started
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # what pickle raises
        raise DataError(
            f"the source's samples cannot be sent to loader workers: {error}",
            key="data.workers",
            hint="set data.workers=0, or return sets that can be pickled, of classes that are defined in modules",
        ) from error


def _as_it_is(item: Any) -> Any:
    return item


def _begin_worker(num_threads: int, worker: int) -> None:
    torch.set_num_threads(num_threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.excepthook = _told_unless_reader_is_gone


def _told_unless_reader_is_gone(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error of a thread, but not of a connection that broke because the process that reads was killed.

    A thread of multiprocessing, which hands over tensors, would print it on the terminal of the user.
    """
    reader = multiprocessing.parent_process()
    if isinstance(error, ConnectionError | EOFError) and reader is not None:
        reader.join(_GONE_S)
        if not reader.is_alive():
            return
    sys.__excepthook__(kind, error, trace)
