"""The data of a spec, opened, and its network, with every shape known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict

import torch

from alray.config.objects import how_to_give, names_of
from alray.config.sections.duration import Duration
from alray.config.sections.model import TRANSFORMERS
from alray.config.sections.replica_checks import last_batch_fault
from alray.config.sections.section import listed
from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.core.errors import DataError, SpecError
from alray.core.run_folder.data_identity import DataIdentity
from alray.core.storage.location import Location
from alray.data.assumed import described_data
from alray.data.dataset import Dataset
from alray.data.form import DataForm, form_in
from alray.data.opening import open_data
from alray.data.source import Normalisation
from alray.models.encoder import EncoderFacts
from alray.models.imported.identity import is_same_module
from alray.models.network import Network
from alray.models.shape import Shape
from alray.models.trial_passes import gives_probabilities
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.device import devices

_OF_SEVERAL = {"all_reduce", "compression", "balance", "synchronise"}
"""Keys of `replicas` that change nothing where there is one."""
_OF_SCALING = {"warmup_from", "reference_batch_size"}
"""Keys of `lr_schedule` that change nothing where rates are not scaled."""


class Position(TypedDict):
    """How far a run is: mini-batches, epochs and samples."""

    step: int
    epoch: float
    samples: int


@dataclass(frozen=True)
class DataFacts:
    """The facts about the data that every stage needs. Only stage 0 opens the data itself."""

    sample: Shape
    classes: int
    steps_per_epoch: int
    samples_per_epoch: int
    identity: DataIdentity
    normalisation: Normalisation | None = None
    target_normalisation: Normalisation | None = None

    @classmethod
    def of(cls, data: Dataset) -> DataFacts:
        whole = data.steps_per_epoch * data.section.batch_size
        return cls(
            sample=data.sample_shape,
            classes=len(data.classes),
            steps_per_epoch=data.steps_per_epoch,
            samples_per_epoch=whole if data.section.last_batch == "drop" else len(data.train),
            identity=data.identity,
            normalisation=data.train.normalisation,
            target_normalisation=data.train.target_normalisation,
        )

    def samples(self, step: int, batch_size: int) -> int:
        """Number of samples seen after `step` mini-batches."""
        epoch, position = divmod(step, self.steps_per_epoch)
        return epoch * self.samples_per_epoch + position * batch_size

    def position(self, step: int, batch_size: int) -> Position:
        """Where a run is after `step` mini-batches, as records say it."""
        return {"step": step, "epoch": step / self.steps_per_epoch, "samples": self.samples(step, batch_size)}

    def steps(self, samples: int, batch_size: int) -> int:
        """Number of mini-batches needed to see this many samples."""
        epochs, rest = divmod(samples, self.samples_per_epoch)
        return epochs * self.steps_per_epoch + -(-rest // batch_size)

    def mini_batches(self, duration: Duration, batch_size: int) -> int:
        """Number of mini-batches in a duration, which is not one in seconds; parts of an epoch are rounded."""
        if duration.unit == "samples":
            return self.steps(int(duration.count), batch_size)
        assert duration.unit != "s", "how many mini-batches fit into a second is not known"
        return round(duration.count * (self.steps_per_epoch if duration.unit == "epochs" else 1))


@dataclass(frozen=True)
class Workload:
    """A spec with its data and its network. It does not say which device runs what."""

    spec: Spec
    code: UserCode
    data: Dataset
    facts: DataFacts
    network: Network

    @classmethod
    def open(
        cls,
        spec: Spec,
        code: UserCode,
        *,
        trained: bool = False,
        known: Callable[[Shape], Sequence[EncoderFacts]] = lambda sample: (),
        for_plan: bool = False,
        form: DataForm | None = None,
        of_run: Location | None = None,
        most_stages: int = 0,
    ) -> Workload:
        """Open the data and compute the shapes of the network.

        Raises DataError or SpecError.

        Args:
            code: loads the user's classes.
            trained: the weights will come from a checkpoint, so initial values that a spec takes from files are not
                read.
            known: what is known already of the encoders, for samples of this shape; (): nothing.
            for_plan: as for `open_data`.
            form: of the data, which are then not opened: their samples are noise.
            of_run: a run that this one goes on with, or does again: its samples and targets are standardised as there.
                None: by the training split.
            most_stages: of plans of several layouts, for which components are counted or measured: a model is cut for
                so many, and texts are padded where a layout needs it. 0: the layout is that of the spec.
        """
        if form is None:
            before = None if of_run is None else form_in(of_run)
            data = open_training_data(spec, code, for_plan=for_plan, any_layout=most_stages > 0)
            if before is not None and before.suits(data):
                before.standardise(data)
        else:
            data = described_data(spec.data, spec.task, form, code)
        facts = DataFacts.of(data)
        network = network_of(spec, facts, code, trained=trained, encoders=known(facts.sample))
        return cls(network.spec, code, data, facts, network)

    @cached_property
    def device(self) -> torch.device:
        """The device of this process: of the kind that the stages compute on, if this process has one, else a CPU."""
        return devices.at_hand(self.spec.resources.resolved_device)

    def require_same_model(self, before: str | None, whose: str, note: Callable[[str], None]) -> None:
        """Raise SpecError if a Python program gave another model than `before`.

        Args:
            before: the hash of the model that was given before; None: it is not known.
            whose: the run that had that one.
            note: gets a sentence where the two cannot be compared.
        """
        now = self.network.model_sha256
        if before is None or now is None:
            return
        same = is_same_module(before, now)
        if same is None:
            note(
                f"whether this is the model of {whose} is not known: that was hashed by another version of alray, "
                "Python or torch"
            )
        elif not same:
            raise SpecError(
                f"this is not the model of {whose}: its layers, their settings or code, or the weights that "
                "it begins with are others",
                key="model.from",
                hint="give the object that the run began with; a module that has trained since is another one",
            )

    def require_own_validation(self) -> None:
        """Raise DataError if the validation set is not there that the source is said to bring. A run that has begun
        knows its sets: a resume compares them, and an evaluation may do without."""
        if self.spec.data.own_validation and self.data.validation is None and self.data.assumed is None:
            raise DataError(
                "there is no validation set",
                key="data.brings_validation",
                hint="return a set from open('validation'), or leave the key out",
            )

    def require_measured_stop(self) -> None:
        """Raise SpecError if the run is to stop by a test set that is not there: a spec alone may not tell.

        A plan without the data does not know it.
        """
        stop = self.spec.run.stop_at
        by_test = stop is not None and stop.bounded and stop.split == "test"
        if by_test and self.data.test is None and self.data.assumed is None:
            raise SpecError(
                "there is no test set", key="run.stop_at.metric", hint="give one, or stop by the validation set"
            )

    @property
    def total_steps(self) -> int:
        """Length of the run in mini-batches."""
        run = self.spec.run
        if run.steps is not None:
            return run.steps
        if run.epochs is not None:
            return run.epochs * self.facts.steps_per_epoch
        assert run.samples is not None, "a spec gives one of epochs, steps, samples"
        return self.facts.steps(run.samples, self.spec.data.batch_size)

    @property
    def least_share(self) -> int:
        """Fewest samples of a mini-batch that a replica gets where shares follow its speed: as many as it can train
        on."""
        replicas = self.spec.replicas
        if replicas.balance == "fixed" or replicas.sync_batch_norm or self.network.needs_two_samples is None:
            return 1
        return 2

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that the user should read before the run: which initial weights were not taken, whether gradients
        are late, which keys of `replicas` change nothing, and where replicas do not give the result of one process.
        """
        spec, encoders = self.spec, self.network.encoders
        notes = [*self.data.told(), *self.network.notes]
        if gives_probabilities(self.network):
            notes.append(
                f"`{spec.model.source or encoders[-1].name}` gives probabilities, as a softmax or a sigmoid makes "
                "them, and the loss takes scores, of which it computes probabilities itself: leave that layer out"
            )
        if given := names_of(spec):
            notes.append(
                f"no file has the objects {listed(given, 'and')} of this program: a resume, an evaluation and a "
                f"reproduction need them again, as in alray.load_run(folder, {how_to_give(given)})"
            )
        source = spec.model.source or ""
        sample = self.data.sample_shape
        if source.startswith(TRANSFORMERS) and sample.is_text and not spec.data.has_numbers_of_tokenizer:
            key = "data.end_token" if sample.tokens is not None else "data.text.numbering=tokenizer"
            notes.append(
                "tokens of the data have other numbers than a tokenizer of Hugging Face gives them: if "
                f"`{source}` comes with vectors of tokens, name its tokenizer and set {key}"
            )
        if SCHEDULES[spec.schedule].gradient_delay:
            notes.append(
                f"`{spec.schedule}` computes each gradient with the weights from before the last update: it "
                "trains other weights than the other schedules"
            )
        rates = spec.lr_schedule
        if rates.scale_with_batch == "none" and (idle := rates.model_dump(include=_OF_SCALING, exclude_defaults=True)):
            keys = listed([f"lr_schedule.{key}" for key in idle], "and")
            notes.append(f"lr_schedule.scale_with_batch is none: nothing is changed by {keys}")
        if spec.replicas.count == 1:
            of_several = spec.replicas.model_dump(include=_OF_SEVERAL, exclude_defaults=True)
            if of_several:
                keys = listed([f"replicas.{key}" for key in of_several], "and")
                notes.append(f"one replica meets no other: nothing is changed by {keys}")
            return tuple(notes)
        not_one = f"{spec.replicas.count} replicas do not train exactly what one process would train"
        by_layers = [self.network.has_batch_norm(index) for index in range(len(encoders))]
        if any(by_layers) and not spec.replicas.sync_batch_norm:
            notes.append(
                "batch normalisation computes its statistics on each replica's share of the mini-batch: "
                f"{not_one}; replicas.sync_batch_norm=true computes them over all replicas"
            )
        for index, mixes in enumerate(self.network.mixes_samples):
            if mixes and not by_layers[index]:
                notes.append(
                    f"component {index} (block `{encoders[index].name}`) computes each sample from the others of its "
                    f"replica's share of the mini-batch, as batch normalisation does: {not_one}"
                )
        if compared := self.network.method.compares_samples():
            notes.append(f"{compared[0]}: {not_one}; {compared[1]}")
        if any(encoder.draws and not encoder.own for encoder in encoders):
            notes.append(f"each replica draws its own dropout masks: {not_one}, but the same on average")
        return tuple(notes)


def open_training_data(
    spec: Spec,
    load: Callable[[str], Any],
    *,
    for_plan: bool = False,
    any_layout: bool = False,
) -> Dataset:
    """Open the data of a run. In a pipeline of backpropagation every text is padded to the same width, because the
    stages fix the shapes of their messages before the run; with `run.compile` it is, because each width would be
    compiled by itself.

    Raises DataError, also if the replicas cannot share the last mini-batch of an epoch.

    Args:
        for_plan: as for `open_data`.
        any_layout: costs are counted or measured with these data for plans of any layout, so texts are padded where one
            of them is such a pipeline.
    """
    piped = SCHEDULES[spec.schedule].is_pipeline or (any_layout and not spec.method.local_losses)
    fixed_length = piped or spec.run.compile
    data = open_data(
        spec.data,
        seed=spec.seed,
        load=load,
        task=spec.task,
        fixed_length=fixed_length,
        for_plan=for_plan,
    )
    fault = last_batch_fault(spec, len(data.train))
    if fault is not None:
        message, hint = fault
        raise DataError(message, key="data.last_batch", hint=hint)
    if data.class_weights is not None and data.labels is None and data.assumed is None and spec.replicas.count > 1:
        raise DataError(
            "a replica reads its own samples only, and these have no classes that are known before they are read",
            key="task.class_weights",
            hint="use one replica, or leave it out",
        )
    return data


def network_of(
    spec: Spec,
    data: DataFacts,
    load: Callable[[str], Any],
    *,
    trained: bool = False,
    encoders: Sequence[EncoderFacts] = (),
) -> Network:
    """The network of a spec on this data, not built yet.

    Args:
        trained, encoders: as for `Network`.
    """
    return Network(spec, sample=data.sample, classes=data.classes, load=load, trained=trained, encoders=encoders)
