"""`alray validate`, `alray schema` and `alray init`: commands on specs, which need neither torch nor Ray."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alray.cli.terminal import Json, terminal, writing
from alray.errors import Problem, RequestError, SpecError
from alray.report.text import counted

if TYPE_CHECKING:
    from alray.spec.models import Spec
    from alray.spec.study.loading import LoadedStudy


def validate(
    specs: Annotated[list[Path], typer.Argument(metavar="SPEC", help="Spec files.", show_default=False)],
    *,
    json: Json = False,
) -> None:
    """Check specs and studies and list every problem in them."""
    with terminal(as_json=json) as streams:
        from alray.spec.loading import load_spec
        from alray.spec.study.loading import is_study, load_study

        good: list[dict[str, Any]] = []
        problems: list[Problem] = []
        for path in specs:
            try:
                if is_study(path):
                    said, text = _described_study(path, load_study(path))
                else:
                    said, text = _described(path, load_spec(path).spec)
            except SpecError as error:
                problems += error.problems
                continue
            good.append(said)
            if not json:
                streams.say(f"{path}: ok ({text})")
        if problems:
            raise RequestError.of(tuple(problems))
        if json:
            streams.answer({"ok": True, "specs": good})


def schema(
    *,
    records: Annotated[
        bool, typer.Option("--records", help="Print the schema of a line of records.jsonl instead.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the JSON Schema of specs and studies.

    The output is JSON with and without --json.
    """
    with terminal(as_json=json) as streams:
        if records:
            from alray.records import json_schema
        else:
            from alray.spec.schema import json_schema
        streams.answer(json_schema())


def init(
    path: Annotated[Path | None, typer.Argument(help="The file to write.  [default: NAME.yaml]")] = None,
    *,
    name: Annotated[str, typer.Option("--from", metavar="NAME", help="The starter spec to copy.")] = "quickstart",
    json: Json = False,
) -> None:
    """Write a commented spec to start from.

    Also writes the JSON Schema with which editors check the spec. Existing files are not changed.
    """
    with terminal(as_json=json) as streams:
        from alray.spec.schema import schema_text
        from alray.spec.starter import SCHEMA_FILE, starter

        target = path if path is not None else Path(f"{name}.yaml")
        schema_file = target.with_name(SCHEMA_FILE)
        if not _written(target, starter(name, target)):
            raise RequestError(
                "the file exists already", file=str(target), mend="name another file, or delete this one first"
            )
        if _written(schema_file, schema_text()):
            streams.tell(f"{schema_file}: written; editors use it to check the spec")
        if json:
            streams.answer({"file": str(target), "schema": str(schema_file)})
        else:
            streams.say(f"{target}: written; `alray run {shlex.quote(str(target))}` runs it")


def _written(file: Path, text: str) -> bool:
    """Write a new file. Returns False if it exists already; raises RequestError if it cannot be written."""
    if file.exists():
        return False
    with writing(file), file.open("x", encoding="utf-8") as new:
        new.write(text)
    return True


def _described(path: Path, spec: Spec) -> tuple[dict[str, Any], str]:
    """What a spec is, as an object and in words."""
    components, stages = spec.model.num_components, spec.pipeline.stages
    said = {
        "file": str(path),
        "method": spec.method.kind,
        "schedule": spec.schedule,
        "components": components,
        "stages": stages,
    }
    return said, ", ".join(
        [spec.method.kind, spec.schedule, counted(components, "component"), counted(stages, "stage")]
    )


def _described_study(path: Path, loaded: LoadedStudy) -> tuple[dict[str, Any], str]:
    """What a study is, as an object and in words."""
    points, trials = len(loaded.points), len(loaded.trials)
    said = {"file": str(path), "study": loaded.study.study, "points": points, "trials": trials}
    return said, f"a study of {counted(points, 'point')} and {counted(trials, 'trial')}"
