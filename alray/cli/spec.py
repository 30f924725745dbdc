"""`alray validate`, `alray schema` and `alray init`: commands on specs, which need neither torch nor Ray.

The committed specs and studies, of which `init` copies one, are files of the package: `templates` leads to the folder
`specs`.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alray.cli.options import AllowCode, Json, gives_value
from alray.cli.terminal import Terminal, shown, terminal, writing
from alray.core.counting import counted
from alray.core.errors import AlrayError, Problem, RequestError, SpecError

if TYPE_CHECKING:
    from alray.config.loading.load import LoadedSpec

SCHEMA_FILE = "alray.schema.json"
"""The name of the schema file next to the starter specs; their second comment tells editors to use it."""
_SUFFIX = ".yaml"
_NAME = re.compile(r"^(name|study): \S+", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
"""Names of files that need no quotes as the name of a run or a study."""
_BASE = re.compile(r"^base: (\S+)", re.MULTILINE)


def validate(
    specs: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC|key=value",
            help="Spec files, and values that replace those of all of them.",
        ),
    ],
    *,
    show: Annotated[
        bool, typer.Option("--show", help="Print each spec as it is run: on top of its base, with all defaults.")
    ] = False,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Also open the data, read samples, run your code and build the network without weights."
        ),
    ] = False,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Check specs and studies and list every problem in them.

    The data and the modules of `python:` classes that a spec names must be there. They are opened only with --deep.
    """
    with terminal(as_json=json) as streams:
        good: list[dict[str, Any]] = []
        problems: list[Problem] = []
        from alray.config.loading.overrides import each_in_words

        typed = each_in_words(specs)
        overrides = [word for words in typed if len(words) > 1 or gives_value(words[0]) for word in words]
        paths = [Path(word) for word in specs if word not in overrides]
        if not paths:
            raise RequestError(
                "no spec is named", key="SPEC", hint="name a file next to the values that replace those of the file"
            )
        for path in paths:
            try:
                result = _checked(path, overrides, streams, deep=deep, allow_code=allow_code, show=show)
            except AlrayError as error:
                problems += error.problems
                continue
            good.append(result)
            if not json:
                text = result.pop("text", None)
                if text is None:
                    streams.say(f"{path}: ok ({_described(result)})")
                else:
                    streams.put(text.rstrip())
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
    """Print the JSON Schema of a spec.

    The output is JSON with and without --json.
    """
    with terminal(as_json=json) as streams:
        if records:
            from alray.core.run_folder.records import json_schema
        else:
            from alray.config.schema import json_schema
        streams.answer(json_schema())


def init(
    path: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file to write.", show_default="NAME.yaml")
    ] = None,
    *,
    name: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="NAME",
            help="The committed spec or study to copy, such as al/vgg_cifar10.",
        ),
    ] = "quickstart",
    json: Json = False,
) -> None:
    """Write a commented spec to start from: any of those that come with alray.

    Also writes its base, and the JSON Schema with which editors check the spec. Existing files are not changed.
    """
    with terminal(as_json=json) as streams:
        from alray.config.schema import schema_text

        names = starter_names()
        if name not in names:
            raise SpecError(
                f"there is no starter spec `{name}`", hint=f"choose one of {', '.join(names)}", key="--from"
            )
        target = path if path is not None else Path(f"{name.rpartition('/')[2]}{_SUFFIX}")
        schema_file = target.parent / SCHEMA_FILE
        texts = starter(name, target)
        for file in texts:
            if file.exists():
                raise RequestError(
                    "the file exists already", file=str(file), hint="name another file, or delete this one first"
                )
        if not schema_file.exists():
            texts[schema_file] = schema_text()
        for file, text in texts.items():
            with writing(file):
                file.write_text(text, encoding="utf-8", errors="backslashreplace")
            if file != target:
                streams.tell(f"{file}: written")
        command = "study" if "\nstudy:" in _text_of(name) else "run"
        if json:
            streams.answer({"file": str(target), "schema": str(schema_file)})
        else:
            streams.say(f"{target}: written; `alray {command} {shlex.quote(str(target))}` runs it")


def starter_names() -> list[str]:
    """The names of the committed specs and studies, such as `quickstart` and `al/vgg_cifar10`."""
    files = _templates().rglob(f"*{_SUFFIX}")
    return sorted(file.relative_to(_templates()).as_posix().removesuffix(_SUFFIX) for file in files)


def starter(name: str, file: Path) -> dict[Path, str]:
    """The files to write for a starter spec, with their texts: the spec, and next to it its base and the base of that.

    Args:
        file: where the spec will be written; its first line then shows the command that runs this file.
    """
    text = _adapted(name, file)
    if (found := _BASE.search(text)) is None:
        return {file: text}
    base = os.path.normpath(f"{name}/../{found[1]}").removesuffix(_SUFFIX)
    base_file = file.parent / f"{file.stem}_base{_SUFFIX}"
    return {file: _BASE.sub(f"base: {base_file.name}", text), **starter(base, base_file)}


def _templates() -> Path:
    from importlib.resources import files

    return Path(str(files("alray.config") / "templates"))


def _text_of(name: str) -> str:
    return (_templates() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def _adapted(name: str, file: Path) -> str:
    """The text for a file: its name in the command and as that of the run, and the schema next to it."""
    text = _text_of(name).replace(f"specs/{name}{_SUFFIX}", shlex.quote(str(file)))
    if _PLAIN.fullmatch(file.stem):
        text = _NAME.sub(rf"\g<1>: {file.stem}", text, count=1)
    return re.sub(r"(\$schema=)\S+", rf"\g<1>{SCHEMA_FILE}", text, count=1)


def _checked(
    path: Path, overrides: list[str], streams: Terminal, *, deep: bool, allow_code: bool, show: bool
) -> dict[str, Any]:
    """Return what a spec is, and with `show` its text. Raises SpecError, DataError or PlanError for everything that is
    wrong."""
    from alray.config.loading.inputs import input_checks, load_with_inputs
    from alray.config.loading.load import dump_spec
    from alray.config.study.load import is_study, load_study

    if is_study(path):
        study = load_study(
            path,
            overrides,
            also=lambda folder: input_checks(folder, allow_elsewhere=allow_code),
        )
        if deep:
            read: set[str] = set()
            for point in study.points:
                trial = next(trial for trial in study.trials if trial.point is point)
                loaded = load_with_inputs(study.study.base, trial.overrides, allow_elsewhere=allow_code)
                _plan(loaded, streams, allow_code, read)
        points, trials = len(study.points), len(study.trials)
        result = {"file": str(path), "study": study.study.study, "points": points, "trials": trials}
        result |= {"skipped": len(study.skipped)} if study.skipped else {}
        return {**result, **({"text": _commented(path, None, dump_spec(study.study))} if show else {})}
    loaded = load_with_inputs(path, overrides, allow_elsewhere=allow_code)
    spec = loaded.spec
    result = {
        "file": str(path),
        "method": spec.method.kind,
        "schedule": spec.schedule_name,
        "components": spec.num_components,
        "stages": spec.pipeline.stages,
    }
    if deep:
        result["samples"] = _plan(loaded, streams, allow_code, set())
    if show:
        for note in loaded.notes:
            streams.tell(note)
        result["text"] = _commented(path, loaded.base, dump_spec(spec))
    return result


def _commented(path: Path, base: Path | None, text: str) -> str:
    """The text of a spec, below a line that says which files it comes from."""
    below = "" if base is None else f", on top of {shown(base)}"
    return f"# {shown(path)}{below}\n{text}"


def _plan(loaded: LoadedSpec, streams: Terminal, allow_code: bool, read: set[str]) -> int:
    """Open the data of a spec, build its network, plan it and read samples; return the number of training samples.

    Those of this spec are added.

    Args:
        read: the data whose samples were read before, by their section of a spec.
    """
    from alray.api.console.display import PlainLines
    from alray.api.console.interrupts import Interrupts
    from alray.data.batches import check_samples
    from alray.models.compiled import require_compiler
    from alray.report.trackers.make import make_trackers
    from alray.runtime.options import Options
    from alray.runtime.planner.opening import open_planner

    observer = PlainLines(streams.err, Interrupts())
    with loaded.locations.locating():
        planner = open_planner(loaded, Options(allow_code=allow_code, deep=True), observer)
        planner.plan(planner.costs(probe=False), note=observer.note)
        workload, spec = planner.workload, planner.workload.spec
        make_trackers(spec, workload.code)
        section = spec.data.model_dump_json()
        if section not in read:
            observer.doing("reading samples")
            check_samples(workload.data, seed=spec.seed, workers=spec.data.workers)
            read.add(section)
        if spec.run.compile:
            require_compiler()
        return len(workload.data.train)


def _described(result: dict[str, Any]) -> str:
    """Describe a spec or a study in words."""
    if "study" in result:
        skipped = f"; {counted(result['skipped'], 'point')} skipped" if "skipped" in result else ""
        return f"a study of {counted(result['points'], 'point')} and {counted(result['trials'], 'trial')}{skipped}"
    samples = f", {result['samples']:,} training samples" if "samples" in result else ""
    number = result["components"]
    components = "a component for each unit of the model" if number is None else counted(number, "component")
    stages = counted(result["stages"], "stage")
    return f"{result['method']}, {result['schedule']}, {components}, {stages}{samples}"
