"""Pictures and rows of numbers: from the sets of a source to splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from alray.config.sections.data import DataSection
from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.data.class_weights import class_weights
from alray.data.dataset import Dataset
from alray.data.division import divide, never_trained
from alray.data.given import GivenSet
from alray.data.hashes import hash_of_set
from alray.data.picture import PictureFiles, PictureSet
from alray.data.python_source import ResizedSet
from alray.data.source import Normalisation, SampleSet, Source, SplitName, TensorSet
from alray.data.split import SampleSplit, own_entry
from alray.data.standardisation import standardisation_of
from alray.models.shape import Shape
from alray.models.task import make_task


def sample_data(
    source: Source,
    sets: Mapping[SplitName, SampleSet | None],
    section: DataSection,
    seed: int,
    task_section: TaskSection,
    load: Callable[[str], Any],
) -> Dataset:
    """The data of a source of pictures or rows of numbers. Raises DataError, as `open_data`.

    Args:
        sets: of the source; its training set is there.
    """
    task = make_task(task_section, len(source.classes), load=load)
    train, test, own_validation = sets["train"], sets.get("test"), sets.get("validation")
    assert train is not None
    counts = section.split_by_classes or task_section.weights_of_classes == "balanced"
    labels = _class_numbers(train, task_section, read=counts)
    parts = divide(len(train), section, seed, labels)
    sample, label = own_entry(train, 0, "sample 0 of split `train`", task) if source.own else train[0]
    given = tuple(sample.shape)
    of_label = None
    if task.takes_any_label:
        first = torch.as_tensor(label)
        of_label = Shape(first.shape, first.dtype)
        task = make_task(task_section, len(source.classes), Shape((), labels=of_label), load)
    shape = _shape(section, given, source, of_label)
    require_images_to_augment(section, given)
    if source.numbers is not None or source.several is not None:
        _require_as_they_are(section)
    normalisation = source.normalisation
    if source.standardises_samples and section.normalise is None:
        normalisation = _of_part(cast("TensorSet", train).samples, parts.train)
    normalisation = _normalisation(section, normalisation, shape)
    target_normalisation = None
    if task_section.standardises:
        target_normalisation = _target_normalisation(source, train, parts.train)

    def split(name: SplitName, samples: SampleSet, part: Tensor) -> SampleSplit:
        return SampleSplit(
            samples,
            part,
            name=name,
            given=given,
            shape=shape,
            classes=source.classes,
            task=task,
            normalisation=normalisation,
            target_normalisation=target_normalisation,
            own_seed=seed if source.own else None,
        )

    validation = None
    if own_validation is not None:
        validation = split("validation", own_validation, torch.arange(len(own_validation)))
    elif len(parts.validation):
        validation = split("train", train, parts.validation)
    trained = None if labels is None else labels[parts.train]
    return Dataset(
        section=section,
        task=task,
        train=split("train", train, parts.train),
        validation=validation,
        test=split("test", test, torch.arange(len(test))) if test is not None else None,
        inputs=source,
        num_samples=len(train),
        labels=trained,
        chance=task.chance(train.labels[parts.train] if isinstance(train, TensorSet) else trained),
        class_weights=class_weights(task_section.weights_of_classes, source.classes, trained),
        contents=source.contents if source.own else hash_of_set(train),
        notes=(*source.notes, *never_trained(_of_all(train, task_section, labels), parts.train, source.classes)),
    )


def _of_all(samples: SampleSet, section: TaskSection, labels: Tensor | None) -> Tensor | None:
    """The labels of a task with several for each sample, [N, labels], where they are in memory; else `labels`."""
    if section.label == "flags" and isinstance(samples, TensorSet | PictureFiles):
        return torch.as_tensor(samples.labels)
    return labels


def _class_numbers(samples: SampleSet, section: TaskSection, *, read: bool) -> Tensor | None:
    """The class of each sample, [N] int64; None if samples have none, or only reading a sample says it.

    Args:
        read: whether a set that a program gave is read for it, unless it is large.
    """
    if isinstance(samples, ResizedSet):
        samples = samples.samples
    if section.label == "class" and isinstance(samples, GivenSet):
        return samples.class_numbers(read=read)
    if section.label != "class" or not isinstance(samples, TensorSet | PictureFiles):
        return None
    labels = torch.as_tensor(samples.labels)
    return labels if labels.dtype == torch.int64 and labels.ndim == 1 else None


def _shape(section: DataSection, given: tuple[int, ...], source: Source, labels: Shape | None) -> Shape:
    """The shape of a sample as the model gets it: as many equal channels as are wanted are made of one."""
    wanted = section.channels
    if wanted is not None and (len(given) != 3 or given[0] not in (1, wanted)):
        raise DataError(
            f"there are no {wanted} channels to make of samples of shape {list(given)}",
            key="data.channels",
            hint="leave it out: it is for pictures [1, height, width]",
        )
    sizes = given if wanted is None else (wanted, *given[1:])
    return Shape.of_samples(sizes, numbers=source.numbers, labels=labels, several=source.several)


def require_images_to_augment(section: DataSection, shape: tuple[int, ...]) -> None:
    if section.augment != "none" and (len(shape) != 3 or shape[0] not in (1, 3)):
        raise DataError(
            f"`{section.augment}` is for pictures with 1 or 3 channels, but the samples have shape {list(shape)}",
            key="data.augment",
            hint="set data.augment=none",
        )
    if section.mix is not None and section.mix.cutmix is not None and len(shape) != 3:
        raise DataError(
            f"CutMix is for pictures [channels, height, width], but the samples have shape {list(shape)}",
            key="data.mix.cutmix",
            hint="leave it out, or use mixup",
        )


def _require_as_they_are(section: DataSection) -> None:
    for key in ("mix", "normalise"):
        if getattr(section, key) is not None:
            raise DataError(
                f"`{key}` computes with values, and the samples are rows of whole numbers, or have several inputs",
                key=f"data.{key}",
                hint="leave it out, or give samples.float()",
            )


def _of_part(values: Tensor, part: Tensor) -> Normalisation:
    """How these rows of [N, columns] are standardised, so that they say nothing of the others."""
    return standardisation_of((values if len(part) == len(values) else values[part]).numpy())


def _target_normalisation(source: Source, train: SampleSet, part: Tensor) -> Normalisation | None:
    """How the targets of a regression are standardised. Raises DataError if the source says it of other targets.

    Args:
        part: indices into `train` of the samples that say it.
    """
    if source.standardises_targets:
        return _of_part(torch.as_tensor(cast("TensorSet | PictureSet", train).labels), part)
    found = source.target_normalisation
    if found is None:
        return None
    if not len(found.mean) == len(found.std) == len(source.classes):
        raise DataError(
            f"`target_normalisation` has {len(found.mean)} means and {len(found.std)} standard deviations for "
            f"{len(source.classes)} targets",
            key="data.source",
            hint="give one mean and one standard deviation for each target",
        )
    return found


def _normalisation(
    section: DataSection, of_source: Normalisation | None, shape: tuple[int, ...]
) -> Normalisation | None:
    """How the samples are normalised: as the spec says, or else as the source does."""
    asked = section.normalise
    found = of_source if asked is None else Normalisation(asked.mean, asked.deviation)
    if asked is None and found is not None and section.channels is not None and len(found.mean) == 1:
        found = Normalisation(found.mean * shape[0], found.std * shape[0])
    if found is not None and not (len(found.mean) == len(found.std) and shape[:1] == (len(found.mean),)):
        raise DataError(
            f"`{'normalisation' if asked is None else 'normalise'}` has {len(found.mean)} means and {len(found.std)} "
            f"standard deviations, but the samples have shape {list(shape)}",
            key="data.source" if asked is None else "data.normalise",
            hint="give one mean and one standard deviation for each channel, the first dimension of a sample",
        )
    return found
