"""The base class of all sections of a spec, number types with bounds, and the wording of values in messages."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from alray.config.sections.usual_names import USUAL_NAMES, usual_name
from alray.core.errors import PlanError, printable
from alray.core.quantities import value_of

PLAIN = "plain"
"""Type of the errors that already have a message for the user (see `refusal`)."""

ANCHORS = "x-"
"""How keys at the top of a spec or a study begin that only hold values for YAML's anchors. Nothing reads them."""

_SIMILARITY = 0.7
"""Of two words, to suggest one for the other: `channels` for `chanels`, but not `cpu` for `gpu`."""
_PART = 3
"""Letters of a word that may stand for a longer one, such as `csv` for `text_csv`."""


class Section(BaseModel):
    """A mapping of the spec. It is frozen, refuses unknown keys and does not convert types.

    The docstring of a field says what it is, its unit and its default. JSON Schema and error messages use these
    docstrings (`meanings`), so the first sentence is a noun phrase.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=False,
        defer_build=True,  # of a validator, until its first use: a spec's one checks its sections, a stage checks none
    )

    abbreviation: ClassVar[str] = ""
    """Short name of the kind that this section stands for, such as BP, if the field has one."""


def meanings(section: type[Section]) -> dict[str, str]:
    """The docstrings or descriptions of a section's fields, by field.

    They are read from the source when they are asked for. pydantic's `use_attribute_docstrings` reads those of each
    class when it is made, which takes every process 0.4 s.
    """
    found: dict[str, str] = {}
    for each in reversed(section.__mro__):
        if issubclass(each, Section):
            found |= _documented(each.__module__).get(each.__name__, {})
    fields = section.model_fields.items()
    return {name: text for name, field in fields if (text := found.get(name) or field.description)}


@cache
def _documented(module: str) -> dict[str, dict[str, str]]:
    """The docstrings of fields, by the class of a module and by field. {} where its source cannot be read."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # classes of a console or a notebook
        return {}
    found: dict[str, dict[str, str]] = {}
    for node in (each for each in tree.body if isinstance(each, ast.ClassDef)):
        for field, after in pairwise(node.body):
            match field, after:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found.setdefault(node.name, {})[name] = inspect.cleandoc(text)
    return found


def refusal(message: str, hint: str) -> PydanticCustomError:
    """Return the error that a validator raises.

    Args:
        message: what is wrong.
        hint: what to do about it.
    """
    return PydanticCustomError(PLAIN, "{message}", {"message": printable(message), "hint": printable(hint)})


def refused(error: PlanError) -> PydanticCustomError:
    """The error of a validator in place of one that has no place in the spec."""
    (problem,) = error.problems
    return refusal(problem.message, problem.hint or "correct it")


def quantity_of(text: str, units: Mapping[str, float]) -> float | None:
    """As `alray.core.quantities.value_of`, for validators."""
    try:
        return value_of(text, units)
    except PlanError as error:
        raise refused(error) from error


def describe(value: Any) -> str:
    """Return a value as messages name it: "the text `abc`", "12", "true", "null", "a list", "a section"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        shown = value.replace("\n", "\\n")
        return f"the text `{shown if len(shown) <= 60 else shown[:57] + '...'}`"
    if isinstance(value, int | float):
        return f"{value}"
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list | tuple):
        return "a list"
    return f"a {type(value).__name__}"


def listed(words: Sequence[str], last: str = "or") -> str:
    """Return words as a list in code quotes: "`a`", "`a` or `b`", "`a`, `b` or `c`"."""
    quoted = [f"`{word}`" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of the known keys, values or names that was probably meant: what a spec calls what others call `word`,
    the most alike, the only one that has the same letters or contains it, or the most alike of others' names."""
    by_lower = {each.lower(): each for each in known}
    word = word.lower()
    if (usual := usual_name(word)) in by_lower:
        return by_lower[usual]
    by_others = {other: by_lower[name] for other, name in USUAL_NAMES.items() if name in by_lower}
    for names, found in (
        (by_lower, difflib.get_close_matches(word, by_lower, n=1, cutoff=_SIMILARITY)),
        (by_lower, [each for each in by_lower if sorted(each) == sorted(word)]),
        (by_lower, [each for each in by_lower if len(word) >= _PART and word in each]),
        (by_others, difflib.get_close_matches(word, by_others, n=1, cutoff=_SIMILARITY)),
    ):
        if len(found) == 1:
            return names[found[0]]
    return None


def did_you_mean(meant: str | None, otherwise: str) -> str:
    """The hint that asks whether a key, an override or a value was meant.

    Args:
        otherwise: the hint if none is near.
    """
    if meant is None:
        return otherwise
    remark = " With local losses it limits the gradients of each component alone" if "clip_norm" in meant else ""
    return f"did you mean `{meant}`?{remark}"


def is_too_long(path: str) -> bool:
    """Whether no file of Linux can have this path: a name has at most 255 bytes, a path 4,095."""
    content = path.encode("utf-8", "surrogateescape")
    return len(content) > 4_095 or any(len(name) > 255 for name in content.split(b"/"))


def located(value: Any, info: ValidationInfo) -> Path:
    """`path_from` as pydantic calls a validator: the directory is `context["directory"]`."""
    return path_from(value, (info.context or {}).get("directory"))


def path_from(value: Any, directory: Path | None) -> Path:
    """The path that a value of a spec stands for.

    Args:
        directory: where relative paths begin; None: they stay relative.

    Raises:
        PydanticCustomError: of `refusal`, if it stands for none.
    """
    if not isinstance(value, str | Path):
        raise refusal(f"expected a path, got {describe(value)}", "write a path as text, such as data/train")
    if not str(value).strip() or "\0" in str(value):
        raise refusal("expected a path that is not empty and has no NUL characters", "write, for example, data/train")
    if is_too_long(str(value)):
        raise refusal("this path is longer than that of any file", "write, for example, data/train")
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:  # "~name" without such a user
        raise refusal(
            f"`{value}` begins with a home folder that does not exist", "write the whole path, or `~/` for your own"
        ) from error
    return path if directory is None else Path(directory) / path


@dataclass(frozen=True)
class Input:
    """Marks a field whose text may be a path that is read. It is one if it ends with `ending` and does not match
    `not_matching`.

    Attributes:
        kind: what must be there.
        not_matching: a regular expression, of the whole text; None: any text is a path.
    """

    kind: Literal["file", "folder"]
    ending: str = ""
    not_matching: str | None = None

    def marks(self, value: Any) -> bool:
        """Whether a value of the field is such a path."""
        text = str(value)
        is_none = self.not_matching is not None and re.fullmatch(self.not_matching, text) is not None
        return text.endswith(self.ending) and not is_none


SpecPath = Annotated[Path, BeforeValidator(located)]
"""A path. A relative one is taken from the folder of the spec, which `context["directory"]` gives."""
InputFile = Annotated[SpecPath, Input("file")]
"""The path of a file that is read."""
InputFolder = Annotated[SpecPath, Input("folder")]
"""The path of a folder that is read."""

PositiveInt = Annotated[int, Field(ge=1)]
Width = Annotated[int, Field(ge=1, le=1_000_000)]
"""The width of a layer. The bound keeps the size of a square matrix of this width within 64 bits."""
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Counts = Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)]
"""At least one positive integer. Not strict, because YAML gives lists, not tuples."""
