"""`alray.run`, `load_run` and `reproduce`: a run, and what one does with it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from alray.api import run_steps
from alray.api.callbacks import Calls
from alray.api.calls import (
    Overrides,
    checked,
    data_texts,
    in_python,
    override_texts,
    require_one_of,
    teller,
    watched,
    wrong_form,
)
from alray.api.console.layout import Page
from alray.api.console.summary_text import summary_rows
from alray.api.frames import frame_of
from alray.api.notebook import framed
from alray.api.objects import Taken, given_again, taken, taken_overrides
from alray.config.loading.inputs import load_own_spec
from alray.config.loading.load import SpecSource
from alray.config.objects import NO_OBJECTS, Objects, how_to_give, names_of
from alray.config.sections.spec import Spec
from alray.core.counting import counted
from alray.core.errors import CheckpointError, RunError
from alray.core.run_folder.records import Summary, effective, read, read_summary
from alray.core.run_folder.store import require_run_dir
from alray.core.storage.location import Location, location_of
from alray.planning.prediction.plan import Plan
from alray.report.folder import read_plan
from alray.report.text import score
from alray.runtime.options import Finished, Requested

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike
    from pandas import DataFrame
    from torch import nn

    from alray.api.reproduction import Reproduction
    from alray.api.trained import Trained
    from alray.inference.export import Exported, Format
    from alray.inference.generation import Generated
    from alray.inference.plain_network import PlainNetwork
    from alray.inference.requests import Evaluated
    from alray.models.task import Prediction

RecordKind = Literal["step", "stage", "evaluation", "checkpoint", "event", "plan"]
_RECORD_KINDS: tuple[str, ...] = get_args(RecordKind)


@checked
def run(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    model: Any = None,
    data: Any = None,
    inline: bool = False,
    output: str | Location | None = None,
    address: str | None = None,
    profile: str | None = None,
    allow_code: bool = False,
    callbacks: Sequence[object] = (),
    progress: bool = True,
) -> Run:
    """Train the network of a spec, as `alray run` does, and return the run when it has ended.

    Raises an `alray.AlrayError`: a `RequestError` if nothing was started, a `RunError` if the run failed. Ctrl-C, or a
    notebook's stop button, finishes the mini-batch, writes a checkpoint and raises KeyboardInterrupt; a second one
    stops at once. After both, `alray.load_run` opens the run folder.

    Args:
        spec: a file, a dict or an `alray.Spec`. Relative paths are taken from the folder of the file, or from the
            current folder.
        overrides: values that replace those of the spec, such as {"optimizer.lr": 3e-4}. A value may be a class or a
            function in place of its name, here and in a spec that is a dict.
        model: in place of `model.from`: a torch module with its first weights, or a class or function that makes one,
            whose weights the seed draws.
        data: in place of `data.source`: (train, validation, test), or the training set alone. A set is a data set of
            torch, a loader of one, or a pair (samples, labels) of tensors or arrays; None: there is none.
        inline: run in this process, without Ray.
        output: the run folder, new or empty, or its URL on object storage; None: runs/<name>-<time>.
        address: the Ray cluster to connect to; None: start one.
        profile: mini-batches to trace, such as "20-24,40".
        allow_code: also load `python:` classes from outside the folder of the spec, or from a folder that was made on
            another machine or by another user.
        callbacks: objects of `alray.Callback`, or with methods of it. One that stops the run is no error: the run that
            is returned is then `interrupted`. What one of them raises ends the run: it has failed, with a checkpoint.
        progress: show it, and the results at the end.
    """
    return run_taken(
        taken(spec, overrides, model=model, data=data),
        callbacks=callbacks,
        progress=progress,
        inline=inline,
        output=output,
        address=address,
        profile=profile,
        allow_code=allow_code,
    )


def run_taken(found: Taken, *, callbacks: Sequence[object] = (), progress: bool, **requested: Unpack[Requested]) -> Run:
    """`run`, with names in place of objects."""
    calls = Calls(callbacks, partial(Run, objects=found.objects))
    shown = calls.beside(watched(progress))
    options: Requested = {**requested, "objects": found.objects}
    finished = run_steps.run(shown, found.spec, found.overrides, **options)
    return _ended(finished, calls, progress)


@checked
def load_run(folder: str | Location, **objects: Any) -> Run:
    """The run in a run folder, which may still be going on.

    Args:
        folder: its path, or its URL on object storage.
        objects: what a Python program gave to the run and no file has, such as `model` and `data`. To resume, reproduce
            and evaluate it need them.

    Raises:
        alray.core.errors.CheckpointError: if no run made it.
        alray.core.errors.RequestError: for an object that the run does not have.
    """
    run = Run(require_run_dir(location_of(folder)))
    return Run(run.folder, given_again(run.spec, objects)) if objects else run


@checked
def reproduce(
    run: Run | str | Location,
    overrides: Overrides = None,
    *,
    inline: bool | None = None,
    output: str | Location | None = None,
    address: str | None = None,
    allow_code: bool = False,
    callbacks: Sequence[object] = (),
    progress: bool = True,
    **objects: Any,
) -> Reproduction:
    """Do a run again as it was recorded, as `alray reproduce` does: `same` says whether it ended in the same weights.

    The others, and what is raised, as for `alray.run`. Where a callback stops it before these weights, that is a
    RunError: there is nothing to compare.

    Args:
        run: a run, its folder or its URL.
        overrides: another layout on devices, such as {"pipeline.stages": 1}.
        inline: in this process, without Ray; None: as recorded.
        objects: as for `load_run`.
    """
    folder, given = folder_of(run, "run"), override_texts(overrides)
    recorded = run if isinstance(run, Run) and not objects else load_run(folder, **objects)
    calls = Calls(callbacks, partial(Run, objects=recorded.objects))
    finished, found = run_steps.reproduce(
        calls.beside(watched(progress)),
        folder,
        given,
        in_process=inline,
        output=output,
        address=address,
        allow_code=allow_code,
        objects=recorded.objects,
    )
    again = _ended(finished, calls, progress)
    if found is None:
        raise RunError(
            f"{again.folder}: stopped {calls.reason} after {counted(again.summary.steps, 'mini-batch')}, before the "
            "weights that are compared",
            hint="reproduce it again without this callback",
        )
    return found


def folder_of(run: Run | str | Location, name: str) -> Location:
    """The folder of what names a run. Raises RequestError for anything else.

    Args:
        name: of the argument.
    """
    if isinstance(run, Run):
        return run.folder
    if not isinstance(run, str | Location):
        raise wrong_form(name, run, "a run, its folder or its URL")
    return location_of(run)


class Run:
    """A run: its folder, its results, and what its trained network can do.

    In a notebook it shows its page.
    """

    def __init__(self, folder: Location, objects: Objects = NO_OBJECTS) -> None:
        """
        Args:
            folder: an existing run folder.
            objects: that the program gave to the run.
        """
        self.folder = folder
        self.objects = objects

    @property
    def summary(self) -> Summary:
        """The content of `summary.json`. Raises CheckpointError while the run is running, and if it was killed."""
        found = read_summary(self.folder)
        if found is None:
            raise CheckpointError(
                "the run has no summary: it is still running, or it was killed",
                file=str(self.folder),
                hint="wait for its end, read `records()`, or continue with `resume()`",
            )
        return found

    @property
    def spec(self) -> Spec:
        """The spec of the run, with all defaults."""
        return load_own_spec(self.folder).spec

    @property
    def plan(self) -> Plan:
        """The last plan of the run."""
        return read_plan(self.folder)

    def records(self, kind: RecordKind | None = None) -> DataFrame:
        """The records of the run so far, without work that was lost: a row for each, in order.

        Args:
            kind: only those of this kind. Columns have the names of the fields that docs/keys.md explains, with a
                dot for each level: `losses.0.associated`, `per_depth.2.test`.

        Raises:
            RequestError: for an unknown kind.
        """
        if kind is not None:
            require_one_of(kind, _RECORD_KINDS, key="kind")
        records = effective(read(self.folder / "records.jsonl"))
        return frame_of([record for record in records if kind is None or record.kind == kind])

    @checked
    def trained(
        self, *, best: bool = False, step: int | None = None, data: Overrides = None, allow_code: bool = False
    ) -> Trained:
        """The trained network, which `evaluate`, `predict`, `network` and the others use: with the weights of the last
        checkpoint, or of another one.

        Args:
            best: those with the best value of the metric on the validation set.
            step: those after so many mini-batches.
            data: where files of the data lie now, such as {"train": "photos"}.
            allow_code: also run the code of a folder that another machine or user made.
        """
        from alray.api.trained import Trained
        from alray.inference.chosen_weights import RequestedWeights

        requested = RequestedWeights(best, step)
        return Trained(self.folder, requested, data_texts(data), allow_code=allow_code, objects=self.objects)

    def evaluate(self, *, depth: int | None = None) -> Evaluated:
        """`trained().evaluate`: with the last checkpoint."""
        return self.trained().evaluate(depth=depth)

    def predict(self, inputs: str | Path | Sequence[str | Path], *, depth: int | None = None) -> list[Prediction]:
        """`trained().predict`: with the last checkpoint."""
        return self.trained().predict(inputs, depth=depth)

    def generate(self, prompt: str, **settings: Any) -> Generated:
        """`trained().generate`, with its settings: with the last checkpoint."""
        return self.trained().generate(prompt, **settings)

    def network(self, depth: int | None = None) -> PlainNetwork:
        """`trained().network`: with the last checkpoint."""
        return self.trained().network(depth)

    def model(self) -> nn.Module:
        """`trained().model`: with the last checkpoint."""
        return self.trained().model()

    def activations(self, batch: ArrayLike | torch.Tensor, depth: int | None = None) -> list[torch.Tensor]:
        """`trained().activations`: with the last checkpoint."""
        return self.trained().activations(batch, depth)

    def export(self, format: Format, output: str | Location | None = None, *, depth: int | None = None) -> Exported:
        """`trained().export`: of the last checkpoint."""
        return self.trained().export(format, output, depth=depth)

    @checked
    def resume(
        self,
        overrides: Overrides = None,
        *,
        inline: bool = False,
        address: str | None = None,
        profile: str | None = None,
        allow_change: bool = False,
        allow_code: bool = False,
        callbacks: Sequence[object] = (),
        progress: bool = True,
        **objects: Any,
    ) -> Run:
        """Go on from the last checkpoint, as `alray resume` does; arguments and errors as for `alray.run`.

        Args:
            allow_change: also allow values that change the mathematics of the run.
            objects: as for `load_run`.
        """
        texts, of_overrides = taken_overrides(overrides)
        given = self.objects.and_also(of_overrides)
        if objects:
            given = given.and_also(given_again(self.spec, objects))
        calls = Calls(callbacks, partial(Run, objects=given))
        finished = run_steps.resume(
            calls.beside(watched(progress)),
            self.folder,
            texts,
            allow_change=allow_change,
            inline=inline,
            address=address,
            profile=profile,
            allow_code=allow_code,
            objects=given,
        )
        return _ended(finished, calls, progress)

    def __repr__(self) -> str:
        found = read_summary(self.folder)
        if found is None:
            return f"<alray run {self.folder}: not ended>"
        parts = [found.status, counted(found.steps, "mini-batch")]
        if found.scores.test is not None:
            parts.append(f"test {found.measures.title} {score(found.scores.test)}")
        return f"<alray run {self.folder}: {', '.join(parts)}>"

    def _repr_html_(self) -> str | None:
        """The page of the run; None (IPython then shows the text) as long as there is none."""
        page = self.folder / "report.html"
        return framed(page.read_text(encoding="utf-8")) if page.is_file() else None


def _ended(finished: Finished, calls: Calls, progress: bool) -> Run:
    """The run, whose results are shown with `progress`. Raises what ended it, unless it has finished or a callback
    stopped it."""
    run = calls.run_in(location_of(finished.summary.run_dir))
    calls.ended(run)
    if finished.error is not None and calls.error not in (None, finished.error):
        finished.error.add_note(str(calls.error))
    finished = replace(finished, error=finished.error or calls.error)
    if finished.error is not None or (finished.summary.status == "interrupted" and calls.by_user):
        raise _end_of(finished)
    rows = [(name, in_python(value)) for name, value in summary_rows(finished.summary)]
    if "model" in run.objects.values:
        rows.append(("trained model", "`run.model()`; the one that was given keeps its weights from before"))
    teller(progress)(Page.of(sys.stderr).fields(rows))
    return run


def _end_of(finished: Finished) -> BaseException:
    """Return the error to raise for a run that failed or was stopped. It names the run folder."""
    summary = finished.summary
    if finished.error is not None:
        finished.error.add_note(f'the run folder is {summary.run_dir}; alray.load_run("{summary.run_dir}") opens it')
        return finished.error
    again = how_to_give(names_of(Run(location_of(summary.run_dir)).spec))
    return KeyboardInterrupt(
        f"the run was stopped after {counted(summary.steps, 'mini-batch')}; "
        f'alray.load_run("{summary.run_dir}").resume({again}) continues'
    )
