"""The committed specs and studies, which are files of the package: `templates` leads to the folder `specs`."""

from __future__ import annotations

import os
import re
import shlex
from importlib.resources import files
from pathlib import Path

from alray.core.errors import SpecError

SCHEMA_FILE = "alray.schema.json"
"""The name of the schema file next to the starter specs; their second comment tells editors to use it."""
_SUFFIX = ".yaml"
_NAME = re.compile(r"^(name|study): \S+", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
"""Names of files that need no quotes as the name of a run or a study."""
_BASE = re.compile(r"^base: (\S+)", re.MULTILINE)


def starter_names() -> list[str]:
    """The names of the committed specs and studies, such as `quickstart` and `al/vgg_cifar10`.

    A spec whose base is not among them is left out.
    """
    names = [file.relative_to(_folder()).as_posix().removesuffix(_SUFFIX) for file in _folder().rglob(f"*{_SUFFIX}")]
    return sorted(name for name in names if (base := _base(name)) is None or base in names)


def is_starter_study(name: str) -> bool:
    """Whether it is that of a study."""
    return re.search(r"^study:", _text(name), re.MULTILINE) is not None


def starter(name: str, file: Path) -> dict[Path, str]:
    """The files to write for a starter spec, with their texts: the spec, and next to it its base, the base of that, and
    so on.

    Args:
        file: where the spec will be written; its first line then shows the command that runs this file.
    """
    texts: dict[Path, str] = {}
    while (base := _base(name)) is not None:
        base_file = file.with_name(f"{base.rpartition('/')[2]}{_SUFFIX}")
        while base_file == file or base_file in texts:
            base_file = base_file.with_name(f"base_{base_file.name}")
        texts[file] = _BASE.sub(f"base: {base_file.name}", _adapted(name, file))
        name, file = base, base_file
    return {**texts, file: _adapted(name, file)}


def starter_named(name: str) -> str:
    """The starter spec that is meant by a name or by the beginning of one. Raises SpecError unless it is just one."""
    names = starter_names()
    alike = [each for each in names if each == name] or [each for each in names if each.startswith(name)]
    if len(alike) == 1:
        return alike[0]
    what = f"several starter specs begin with `{name}`" if alike else f"there is no starter spec `{name}`"
    raise SpecError(what, hint=f"choose one of {', '.join(alike or names)}", key="--from")


def _folder() -> Path:
    return Path(str(files("alray.config") / "templates"))


def _text(name: str) -> str:
    return (_folder() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def _base(name: str) -> str | None:
    """The name of the base of a study; None for a spec without one."""
    found = _BASE.search(_text(name))
    return None if found is None else os.path.normpath(f"{name}/../{found[1]}").removesuffix(_SUFFIX)


def _adapted(name: str, file: Path) -> str:
    """The text for a file: its name in the command and as that of the run, and the schema next to it."""
    text = _text(name).replace(f"specs/{name}{_SUFFIX}", shlex.quote(str(file)))
    if _PLAIN.fullmatch(file.stem):
        text = _NAME.sub(rf"\g<1>: {file.stem}", text, count=1)
    return re.sub(r"(\$schema=)\S+", rf"\g<1>{SCHEMA_FILE}", text, count=1)
