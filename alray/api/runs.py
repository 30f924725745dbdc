"""`alray.run`, `load_run` and `reproduce`: a run, and what one does with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from alray.api import run_steps
from alray.api.arguments import checked, wrong_form
from alray.api.calls import Overrides, api_errors, data_texts, override_texts, require_one_of, watched
from alray.api.frames import frame_of
from alray.api.notebook import framed
from alray.config.loading.inputs import load_own_spec
from alray.config.loading.load import SpecSource
from alray.config.sections.spec import Spec
from alray.core.counting import counted
from alray.core.errors import CheckpointError
from alray.core.run_folder.records import Summary, effective, read, read_summary
from alray.core.run_folder.store import require_run_dir
from alray.core.storage.location import Location, location_of
from alray.planning.prediction.plan import Plan
from alray.report.folder import read_plan
from alray.report.text import score
from alray.runtime.options import Finished

if TYPE_CHECKING:
    from pandas import DataFrame

    from alray.api.reproduction import Reproduction
    from alray.inference.export import Exported, Format
    from alray.inference.generation import Generated
    from alray.inference.requests import Evaluated
    from alray.models.task import Prediction

RecordKind = Literal["step", "stage", "evaluation", "checkpoint", "event", "plan"]
_RECORD_KINDS: tuple[str, ...] = get_args(RecordKind)


@checked
def run(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    inline: bool = False,
    output: str | Location | None = None,
    address: str | None = None,
    profile: str | None = None,
    allow_code: bool = False,
    progress: bool = True,
) -> Run:
    """Train the network of a spec, as `alray run` does, and return the run when it has ended.

    Raises an `alray.AlrayError`: a `RequestError` if nothing was started, a `RunError` if the run failed. Ctrl-C, or a
    notebook's stop button, finishes the mini-batch, writes a checkpoint and raises KeyboardInterrupt; a second one
    stops at once. After both, `alray.load_run` opens the run folder.

    Args:
        spec: a file, a dict or an `alray.Spec`. Relative paths are taken from the folder of the file, or from the
            current folder.
        overrides: values that replace those of the spec, such as {"optimizer.lr": 3e-4}.
        inline: run in this process, without Ray.
        output: the run folder, new or empty, or its URL on object storage; None: runs/<name>-<time>.
        address: the Ray cluster to connect to; None: start one.
        profile: mini-batches to trace, such as "20-24,40".
        allow_code: also load `python:` classes from outside the folder of the spec, or from a folder that came from
            elsewhere.
        progress: show it.
    """
    given = override_texts(overrides)

    with api_errors():
        finished = run_steps.run(
            watched(progress),
            spec,
            given,
            inline=inline,
            output=output,
            address=address,
            profile=profile,
            allow_code=allow_code,
        )
        return _ended(finished)


@checked
def load_run(folder: str | Location) -> Run:
    """The run in a run folder, which may still be going on.

    Args:
        folder: its path, or its URL on object storage.

    Raises:
        alray.core.errors.CheckpointError: if no run made it.
    """
    return Run(require_run_dir(location_of(folder)))


@checked
def reproduce(
    run: Run | str | Location,
    overrides: Overrides = None,
    *,
    inline: bool | None = None,
    output: str | Location | None = None,
    address: str | None = None,
    allow_code: bool = False,
    progress: bool = True,
) -> Reproduction:
    """Do a run again as it was recorded, as `alray reproduce` does: `same` says whether it ended in the same weights.

    The others, and what is raised, as for `alray.run`.

    Args:
        run: a run, its folder or its URL.
        overrides: another layout on devices, such as {"pipeline.stages": 1}.
        inline: in this process, without Ray; None: as recorded.
    """
    folder, given = folder_of(run, "run"), override_texts(overrides)
    with api_errors():
        finished, found = run_steps.reproduce(
            watched(progress), folder, given, in_process=inline, output=output, address=address, allow_code=allow_code
        )
        if found is None:
            raise _end_of(finished)
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

    def __init__(self, folder: Location) -> None:
        """
        Args:
            folder: an existing run folder.
        """
        self.folder = folder

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
            kind: only those of this kind. Columns have the names of the fields that docs/run_folder.md explains, with a
                dot for each level: `losses.0.associated`, `per_depth.2.test`.

        Raises:
            RequestError: for an unknown kind.
        """
        if kind is not None:
            require_one_of(kind, _RECORD_KINDS, key="kind")
        records = effective(read(self.folder / "records.jsonl"))
        return frame_of([record for record in records if kind is None or record.kind == kind])

    @checked
    def evaluate(
        self,
        *,
        depth: int | None = None,
        best: bool = False,
        step: int | None = None,
        data: Overrides = None,
        allow_code: bool = False,
    ) -> Evaluated:
        """Measure accuracy, time and size of each route of inference, as `alray evaluate` does.

        Args:
            depth: that of one route; None: all.
            best: with the weights of the best validation accuracy.
            step: with those of the checkpoint after so many mini-batches.
            data: where files of the data lie now, such as {"train": "photos"}.
            allow_code: also run the code of a folder that came from elsewhere.
        """
        from alray.inference.requests import evaluate_run
        from alray.inference.weights import RequestedWeights

        with api_errors():
            return evaluate_run(
                self.folder,
                depth=depth,
                allow_code=allow_code,
                requested=RequestedWeights(best, step),
                data=data_texts(data),
            )

    @checked
    def predict(
        self,
        inputs: str | Path | Sequence[str | Path],
        *,
        depth: int | None = None,
        best: bool = False,
        step: int | None = None,
        data: Overrides = None,
        allow_code: bool = False,
    ) -> list[Prediction]:
        """Predict pictures (files), rows of tables (files), or texts (files, or the texts themselves).

        Args:
            depth, best, step, data: as for `evaluate`; without a depth, the deepest route.
        """
        from alray.inference.requests import predict_run
        from alray.inference.weights import RequestedWeights

        texts = [str(each) for each in ([inputs] if isinstance(inputs, str | Path) else inputs)]
        with api_errors():
            return predict_run(
                self.folder,
                texts,
                depth=depth,
                allow_code=allow_code,
                requested=RequestedWeights(best, step),
                data=data_texts(data),
            )[0]

    @checked
    def generate(
        self,
        prompt: str,
        *,
        tokens: int = 200,
        temperature: float = 1.0,
        seed: int = 0,
        threshold: float | None = None,
        depth: int | None = None,
        best: bool = False,
        step: int | None = None,
        data: Overrides = None,
        allow_code: bool = False,
    ) -> Generated:
        """Continue a text with a language model, as `alray predict --prompt`.

        Args:
            tokens: how many follow the prompt.
            temperature: the scores are divided by it; 0: always the most probable token.
            seed: of the tokens that are drawn.
            threshold: in 0..1; a token leaves at the first depth whose most probable token has this probability.
            depth, best, step, data: as for `predict`.
        """
        from alray.inference.requests import generate_by_run
        from alray.inference.weights import RequestedWeights

        with api_errors():
            return generate_by_run(
                self.folder,
                prompt,
                tokens=tokens,
                temperature=temperature,
                depth=depth,
                seed=seed,
                threshold=threshold,
                allow_code=allow_code,
                requested=RequestedWeights(best, step),
                data=data_texts(data),
            )[0]

    @checked
    def export(
        self,
        format: Format,
        output: str | Location | None = None,
        *,
        depth: int | None = None,
        best: bool = False,
        step: int | None = None,
        data: Overrides = None,
        allow_code: bool = False,
    ) -> Exported:
        """Write the inference route to a file, as `alray export` does.

        Args:
            depth, best, step, data: as for `predict`.
            output: the file, on a disk; None: export/route-<depth> in the run folder, with the format's ending.

        Raises:
            RequestError: for an unknown format.
        """
        from alray.inference.export import FORMATS
        from alray.inference.requests import export_run
        from alray.inference.weights import RequestedWeights

        require_one_of(format, FORMATS, key="format")
        with api_errors():
            file = location_of(output) if output is not None else None
            return export_run(
                self.folder,
                kind=format,
                depth=depth,
                output=file,
                allow_code=allow_code,
                requested=RequestedWeights(best, step),
                data=data_texts(data),
            )[0]

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
        progress: bool = True,
    ) -> Run:
        """Go on from the last checkpoint, as `alray resume` does; arguments and errors as for `alray.run`.

        Args:
            allow_change: also allow values that change the mathematics of the run.
        """
        given = override_texts(overrides)

        with api_errors():
            finished = run_steps.resume(
                watched(progress),
                self.folder,
                given,
                allow_change=allow_change,
                inline=inline,
                address=address,
                profile=profile,
                allow_code=allow_code,
            )
            return _ended(finished)

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


def _ended(finished: Finished) -> Run:
    """The run. Raises what ended it, unless it has finished."""
    if finished.error is not None or finished.summary.status == "interrupted":
        raise _end_of(finished)
    return Run(location_of(finished.summary.run_dir))


def _end_of(finished: Finished) -> BaseException:
    """Return the error to raise for a run that failed or was stopped. It names the run folder."""
    summary = finished.summary
    if finished.error is not None:
        finished.error.add_note(f'the run folder is {summary.run_dir}; alray.load_run("{summary.run_dir}") opens it')
        return finished.error
    return KeyboardInterrupt(
        f"the run was stopped after {counted(summary.steps, 'mini-batch')}; "
        f'alray.load_run("{summary.run_dir}").resume() continues'
    )
