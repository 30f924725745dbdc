"""What the functions of the interface take: a wrong type is an error of alray that names the accepted forms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from alray.api.calls import api_errors, defaults_of_torch
from alray.config.sections.section import Section, describe
from alray.core.errors import RequestError
from alray.core.storage.objects import ObjectPath

P = ParamSpec("P")
T = TypeVar("T")


class _Form(NamedTuple):
    kinds: tuple[type, ...]
    words: str
    items: tuple[type, ...] = ()
    """What a sequence of this form holds, unless it is a text or a mapping; (): anything."""


_LOCATION = (str, Path, ObjectPath)
_FLAG = _Form((bool,), "True or False")
_WHOLE = _Form((Integral, NoneType), "a whole number or None")
_TEXT = _Form((str, NoneType), "a text or None")
_VALUES = _Form(
    (Mapping, str, Sequence, NoneType), "a dict of keys and values, or texts such as 'optimizer.lr=0.1'", (str,)
)
_FORMS = {
    "spec": _Form((*_LOCATION, Mapping, Section), "a file, a dict or an alray.Spec"),
    "overrides": _VALUES,
    "folder": _Form(_LOCATION, "a path or a URL"),
    "output": _Form((*_LOCATION, NoneType), "a path, a URL or None"),
    "address": _TEXT,
    "profile": _TEXT,
    "prompt": _Form((str,), "a text"),
    "inputs": _Form(
        (str, Path, Sequence), "a file, a text, or several; run.network()(samples) takes tensors", (str, Path)
    ),
    "callbacks": _Form((Sequence,), "a list of objects of alray.Callback"),
    "devices": _Form((str, Sequence, NoneType), "their memory, such as '4x24GB', or a list of bytes", (Integral,)),
    "costs": _Form((str, Path, NoneType), "a path or None"),
    **dict.fromkeys(("on", "link", "within"), _TEXT),
    "depth": _WHOLE,
    "step": _WHOLE,
    "tokens": _Form((Integral,), "a whole number"),
    "seed": _Form((Integral,), "a whole number"),
    "temperature": _Form((Real,), "a number"),
    **dict.fromkeys(("progress", "probe", "best", "allow_code", "allow_change"), _FLAG),
    "inline": _Form((bool, NoneType), "True or False"),
}
"""By the name of the argument, in all functions but those of `_OWN_FORMS`."""
_NUMBERS = _Form((str, Sequence), "numbers such as '1,2,4', or a list of them", (Integral,))
_OWN_FORMS = {
    "crossover": {
        "link": _Form((str, Sequence), "a text such as '10 Gbit/s, 50 us', or a list of them", (str,)),
        **dict.fromkeys(("devices", "micro_batches", "batch_sizes"), _NUMBERS),
    }
}
"""By the names of the function and of the argument, where it means something else there."""


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which raises RequestError for an argument of another type than it takes, and tells errors as
    commands tell them, with `overrides` in place of the command line. Inside, torch has its own defaults."""
    signature = inspect.signature(function)
    forms = _FORMS | _OWN_FORMS.get(function.__name__, {})
    further = [each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]

    @wraps(function)
    def with_checks(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in (given | given.get("".join(further), {})).items():
            if name in forms:
                require_form(name, value, forms[name])
        with api_errors(), defaults_of_torch():
            return function(*args, **kwargs)

    return with_checks


def require_form(name: str, value: Any, form: _Form) -> None:
    """Raise RequestError if an argument does not have this form."""
    if not _is_one_of(value, form.kinds):
        raise wrong_form(name, value, form.words)
    if form.items and isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            if not _is_one_of(item, form.items):
                raise wrong_form(name, item, form.words)


def _is_one_of(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether the value is of one of these types. True and False are no numbers."""
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def wrong_form(name: str, value: Any, words: str) -> RequestError:
    """The error for an argument, or an entry of one, that is none of the accepted forms."""
    hint = f"give {words}"
    if name == "spec" and callable(getattr(value, "state_dict", None)):
        hint += "; alray.train(model, (samples, labels)) trains without one, alray.run(spec, model=model) with one"
    return RequestError(f"this is {'None' if value is None else describe(value)}", key=name, hint=hint)
