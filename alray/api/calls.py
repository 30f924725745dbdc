"""The common part of the interface's functions: what they take, overrides, signals and progress."""

from __future__ import annotations

import inspect
import io
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from alray.api.console.display import Display, PlainLines, terminal_display
from alray.api.console.interrupts import Interrupts
from alray.api.notebook import NotebookDisplay, cell_output, preformatted
from alray.config.loading.overrides import override_text
from alray.config.loading.source_locations import COMMAND_LINE
from alray.config.sections.section import Section, describe, did_you_mean, nearest
from alray.config.user_code import require_not_imported
from alray.core.errors import AlrayError, RequestError
from alray.core.storage.objects import ObjectPath
from alray.core.system_errors import system_faults

Overrides: TypeAlias = Mapping[str, object] | Sequence[str] | None
"""Values that replace those of a spec: {"optimizer.lr": 3e-4}, or as the command line takes them, one or several."""
P = ParamSpec("P")
T = TypeVar("T")


class _Form(NamedTuple):
    kinds: tuple[type, ...]
    words: str
    items: tuple[type, ...] = (object,)
    """What a sequence of this form holds, unless it is a text or a mapping."""


_LOCATION = (str, Path, ObjectPath)
_FORMS = {
    "spec": _Form((*_LOCATION, Mapping, Section), "a file, a dict or an alray.Spec"),
    "overrides": _Form(
        (Mapping, str, Sequence, NoneType), "a dict of keys and values, or texts such as 'optimizer.lr=0.1'", (str,)
    ),
    "folder": _Form(_LOCATION, "a path or a URL"),
    "output": _Form((*_LOCATION, NoneType), "a path, a URL or None"),
    "inputs": _Form(
        (str, Path, Sequence), "a file, a text, or several; run.network()(samples) takes tensors", (str, Path)
    ),
    "callbacks": _Form((Sequence,), "a list of objects of alray.Callback"),
    "devices": _Form(
        (str, Sequence, NoneType), "a text, such as '4x24GB' or '1,2,4', or a list of numbers", (Integral,)
    ),
    "inline": _Form((bool, NoneType), "True or False"),
    "allow_code": _Form((bool,), "True or False"),
}
"""By the name of the argument, what it takes: those that are most often something else, or would then do harm. Of the
others Python tells what does not fit."""

_OPTION = re.compile(r"`[^`]* [^`]*`|`?--[a-z][a-z-]*`?")
"""A command in quotes, or an option."""
_arguments: dict[str, bool] = {}
"""The arguments of the functions that `checked` has, and whether each is True or False."""
_found: list[list[Any]] = []
"""Of each call under way, the number type of torch that it has to give back."""
_FOUND = threading.Lock()


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which raises RequestError for an argument of another type than it takes, and tells errors as
    commands tell them, with `overrides` in place of the command line. Inside, torch has its own defaults."""
    signature = inspect.signature(function)
    for each in signature.parameters.values():
        _arguments[each.name] = _arguments.get(each.name, False) or isinstance(each.default, bool)
    further = [each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]

    @wraps(function)
    def with_checks(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in (given | given.get("".join(further), {})).items():
            if name in _FORMS:
                _require_form(name, value, _FORMS[name])
        with api_errors(), defaults_of_torch():
            return function(*args, **kwargs)

    return with_checks


def _require_form(name: str, value: Any, form: _Form) -> None:
    """Raise RequestError if an argument does not have this form."""
    if not isinstance(value, form.kinds):
        raise wrong_form(name, value, form.words)
    if isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            if not isinstance(item, form.items):
                raise wrong_form(name, item, form.words)


def wrong_form(name: str, value: Any, words: str) -> RequestError:
    """The error for an argument, or an entry of one, that is none of the accepted forms."""
    hint = f"give {words}"
    if name == "spec" and callable(getattr(value, "state_dict", None)):
        hint += "; alray.train(model, (samples, labels)) trains without one, alray.run(spec, model=model) with one"
    return RequestError(f"this is {'None' if value is None else describe(value)}", key=name, hint=hint)


def override_texts(overrides: Overrides) -> list[str]:
    """The overrides as the command line takes them."""
    if isinstance(overrides, Mapping):
        return [override_text(key, value) for key, value in overrides.items()]
    return [overrides] if isinstance(overrides, str) else list(overrides or ())


def data_texts(data: Overrides) -> list[str]:
    """Where files of the data lie, as `--data` takes it."""
    if not isinstance(data, Mapping):
        return override_texts(data)
    return [
        f"{key}={value}" if isinstance(value, str | Path) else override_text(key, value) for key, value in data.items()
    ]


def require_one_of(value: str, known: Sequence[str], *, key: str) -> None:
    """Raise RequestError, which names those that exist, if a value of this argument is not known."""
    if value in known:
        return
    raise RequestError(
        f"`{value}` is none of {', '.join(f'`{each}`' for each in known)}",
        key=key,
        hint=did_you_mean(nearest(str(value), known), "name one of them"),
    )


@contextmanager
def api_errors() -> Iterator[None]:
    """Inside, errors are told as commands tell them, with `overrides` in place of the command line, and arguments in
    place of options."""
    try:
        with system_faults():
            yield
    except AlrayError as error:
        error.restate(
            replace(
                problem,
                message=in_python(problem.message),
                hint=None if problem.hint is None else in_python(problem.hint),
                file="overrides" if problem.file == COMMAND_LINE else problem.file,
                key=_argument(problem.key) or problem.key,
            )
            for problem in error.problems
        )
        raise


def in_python(text: str) -> str:
    """A text that names options of a command, with the arguments of functions in their place. Commands in it stay."""

    def argument(found: re.Match[str]) -> str:
        name = _argument(found[0].strip("`"))
        return found[0] if name is None else f"{name}=True" if _arguments[name] else f"`{name}`"

    return _OPTION.sub(argument, text)


def _argument(option: str | None) -> str | None:
    """The argument of this option; None for another text, and for an option of commands alone."""
    name = (option or "").removeprefix("--").replace("-", "_")
    return name if (option or "").startswith("--") and name in _arguments else None


@contextmanager
def defaults_of_torch() -> Iterator[None]:
    """Inside, torch has the defaults that it has in a new process, as for a command, whatever the program has set.

    They decide in which type weights are drawn and where tensors lie. A program that has not imported torch has set
    none.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch

    on_cpu = torch.get_default_device().type == "cpu"
    with _FOUND:
        _found.append(found := [torch.get_default_dtype()])
        torch.set_default_dtype(torch.float32)
    try:
        with (
            nullcontext() if on_cpu else torch.device("cpu"),
            torch.inference_mode(False),
            torch.enable_grad(),
            _without_autocast(),
        ):
            yield
    finally:
        with _FOUND:
            number = next(number for number, each in enumerate(_found) if each is found)
            if later := _found[number + 1 :]:  # calls of other threads go on, the next of which gives it back
                later[0][0] = found[0]
            else:
                torch.set_default_dtype(found[0])
            del _found[number]


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Inside, no device computes in mixed precision. `torch.autocast(enabled=False)` would do so too, but those inside
    it would not forget the weights that they have rounded."""
    import torch

    from alray.core.accelerator import kinds

    before = {device: torch.is_autocast_enabled(device) for device in kinds()}
    try:
        for device in before:
            torch.set_autocast_enabled(device, False)
        yield
    finally:
        for device, was in before.items():
            torch.set_autocast_enabled(device, was)


@contextmanager
def watched(progress: bool) -> Iterator[tuple[Display, Interrupts]]:
    """The display of a run, and the counter of the requests to stop it.

    Args:
        progress: whether it is shown: in the output of a notebook's cell, or on standard error. Signals reach the main
            thread alone, so a run in another thread does not hear them.

    Raises:
        RequestError: if the file that asks for the run is being imported, by alray or by multiprocessing.
    """
    require_not_imported()
    main = threading.current_thread() is threading.main_thread()
    with (
        Interrupts() if main else nullcontext(Interrupts()) as interrupts,
        _display(progress, interrupts) as display,
    ):
        yield display, interrupts


def teller(progress: bool) -> Callable[[str], None]:
    """Return a function that shows one line: in the output of a notebook's cell, or on standard error; nowhere without
    `progress`."""
    if not progress:
        return lambda line: None
    output = cell_output()
    if output is None:
        return lambda line: print(line, file=sys.stderr, flush=True)  # noqa: T201 - a script asked for it
    lines: list[str] = []

    def draw(line: str) -> None:
        lines.append(line)
        output(preformatted(lines))

    return draw


def _display(progress: bool, interrupts: Interrupts) -> Display:
    if not progress:
        return PlainLines(io.StringIO(), interrupts)
    output = cell_output()
    return terminal_display(sys.stderr, interrupts) if output is None else NotebookDisplay(output, interrupts)
