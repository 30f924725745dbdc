"""Where the files of a run's data lie now: `--data KEY=PATH`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alray.config.loading.data_files import keys_of_files, missing_files
from alray.config.loading.inputs import load_own_spec
from alray.config.loading.load import load_spec
from alray.config.loading.overrides import override_text
from alray.config.sections.data import DataSection
from alray.config.sections.own_code import OwnCode
from alray.config.sections.spec import Spec
from alray.core.errors import DataError, Problem, RequestError
from alray.core.storage.location import Location

OPTION = "--data"


def spec_of(run_dir: Location, given: Sequence[str], *, closed: bool = False) -> Spec:
    """The spec of a run, with its data in these locations.

    Raises RequestError if a key names no location of files, SpecError if it cannot have this value, and DataError for
    all files that are not there.

    Args:
        given: KEY=PATH with a key in `data`; relative paths begin in the current folder, and `null` is no path.
        closed: whether the data stay closed, so that only what is given must be there.
    """
    file = run_dir / "spec.yaml"
    spec = load_own_spec(run_dir).spec
    if given:
        spec = load_spec(file, [_override(text, spec.data) for text in given], directory=Path.cwd()).spec
    keys = {text.partition("=")[0].strip() for text in given}
    missing = [
        Problem(message, "correct the path", key=OPTION)
        if key in keys
        else Problem(message, f"say where it lies now: {OPTION} {key}=PATH", key=f"data.{key}")
        for key, message in missing_files(spec)
        if key in keys or not closed
    ]
    if missing:
        raise DataError.of(tuple(missing))
    return spec


def how_to_name(data: DataSection) -> str | None:
    """How a request says where the files of these data lie now; None if they are not in files."""
    keys = _keys(data)
    return f"say where they lie now: {OPTION} {keys[0]}=PATH" if keys else None


def _override(given: str, data: DataSection) -> str:
    """KEY=PATH as an override of the spec. A path is taken as it is written, and not read as YAML."""
    key, equals, location = given.partition("=")
    key, known = key.strip(), _keys(data)
    if not equals:
        raise RequestError(
            f"`{given}` does not have the form KEY=PATH", key=OPTION, hint="write, for example, train=photos"
        )
    if key not in known and not _may_be_argument(key, data):
        raise RequestError(
            f"`{key}` does not say where the data of this run lie",
            key=OPTION,
            hint=f"these keys do: {', '.join(known)}" if known else "leave it out: they are not in files",
        )
    is_path = key != "download" and isinstance(_arguments(data).get(key, ""), str)
    return override_text(f"data.{key}", location) if is_path and location != "null" else f"data.{key}={location}"


def _keys(data: DataSection) -> list[str]:
    return [*keys_of_files(data), *_arguments(data)]


def _may_be_argument(key: str, data: DataSection) -> bool:
    """Whether a key may be an argument of the user's class, or lie in one. The spec need not give those with a
    default."""
    return isinstance(data, OwnCode) and re.split(r"[.\[]", key)[0] not in {"", *type(data).model_fields}


def _arguments(data: DataSection) -> dict[str, Any]:
    """The arguments that the spec gives to the user's class, if there is one: any may say where its files lie."""
    return data.fields if isinstance(data, OwnCode) else {}
