"""Where whole models come from: torchvision, timm, transformers, or a user's code; and the weights that these libraries
have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from alray.config.sections.own_code import OWN
from alray.config.sections.section import did_you_mean, listed, nearest
from alray.config.user_code import own_error
from alray.core.errors import FAULTS_OF_USER_CODE, SpecError
from alray.core.packages import imported
from alray.models.imported.calls import first_line
from alray.models.own_state import require_tensors
from alray.models.shape import Shape

_CLASSES = "num_classes"
"""The argument of constructors in both libraries that weights need not agree with."""


_OF_FILES = frozenset(
    {"cache_dir", "checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "weights"}
)
"""Arguments of constructors in both libraries that name files or downloads, besides `weights_backbone` and the like."""
_ENDINGS = (".bin", ".ckpt", ".npz", ".pickle", ".pkl", ".pt", ".pt2", ".pth", ".safetensors", ".tar", ".zip")


def made(
    source: str,
    arguments: Mapping[str, Any],
    load: Callable[[str], Any],
    *,
    sample: Shape,
    trained: bool = False,
    allow_files: bool = False,
) -> tuple[nn.Module, list[str]]:
    """The model that a spec names, with the weights that its constructor draws; and sentences on what weights lack that
    come with a model of transformers. Raises SpecError.

    Args:
        sample: as for `made_of`, and `trained`.
        allow_files: whether the arguments of a library's constructor may name files, which it may run code of.
    """
    kind, _, name = source.partition(":")
    if not source.startswith(OWN) and not allow_files:
        _refuse_files(source, arguments)
    if kind == "transformers":
        from alray.models.imported.hugging_face import made_of

        return made_of(name, arguments, sample, trained=trained)
    make = {
        "python": lambda: load(source),
        "object": lambda: _maker_of(load(source)),
        "torchvision": lambda: _of_torchvision(name),
        "timm": lambda: _of_timm(name),
    }[kind]()
    try:
        model = make(**arguments)
    except FAULTS_OF_USER_CODE as error:
        message = f"`{source}` cannot be made: {type(error).__name__}: {error}"
        hint = "`with` has the arguments of its constructor: model={'with': {...}} in Python"
        raise own_error(error, message, key="model.with", hint=hint) from error
    if not isinstance(model, nn.Module):
        raise SpecError(
            f"`{source}` gave {type(model).__name__}, not a torch.nn.Module",
            key="model.from",
            hint="name a class of a module, or a function that returns one",
        )
    require_tensors(model, f"`{source}`", "model.from")
    return model, []


def _maker_of(given: Any) -> Any:
    """A class or a function as it is; of a module, what returns it."""
    return (lambda: given) if isinstance(given, nn.Module) else given


def _refuse_files(source: str, arguments: Mapping[str, Any]) -> None:
    """Raise SpecError if an argument names a file or a download. A library may unpickle it, which runs what it says."""
    for name, value in arguments.items():
        loads = name in _OF_FILES or name.startswith("weights_")
        if (loads and value) or any(map(_names_a_file, _texts(value))):
            raise SpecError(
                f"the argument `{name}` of `{source}` names a file or a download, which may run code",
                key=f"model.with.{name}",
                hint="give initial weights in model.weights: those of a file are read without running anything; or, if "
                "you trust that file, pass --allow-code",
            )


def _texts(value: Any) -> Iterator[str]:
    """The texts in a value of a spec, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from (str(key), *_texts(inner))
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)


def _names_a_file(text: str) -> bool:
    return "/" in text or text.lower().endswith(_ENDINGS) or Path(text).is_file()


def named_weights(source: str, arguments: Mapping[str, Any], name: str) -> dict[str, torch.Tensor]:
    """The weights that torchvision or timm has for a model under a name, such as `DEFAULT`, by the model's names.

    They are downloaded if they are not in the library's cache. Global generators may be drawn from. Raises SpecError.
    """
    kind, _, model = source.partition(":")
    arguments = {key: value for key, value in arguments.items() if key != _CLASSES}
    if kind == "torchvision":
        from torchvision.models import get_model

        chosen = _chosen(model, name)
        file = chosen.url.rpartition("/")[2]
        make, hint = (
            partial(get_model, model, weights=chosen, progress=False),
            f"run once where there is a network, or put {file} into {torch.hub.get_dir()}/checkpoints",
        )
    elif kind == "timm" and name == "DEFAULT":
        make, hint = (
            partial(_of_timm(model), pretrained=True),
            "run once where there is a network; timm's `list_pretrained()` has the models that have weights",
        )
    else:
        raise SpecError(
            f"`{source}` has no weights with the name `{name}`",
            key="model.weights",
            hint="give DEFAULT; a tag of timm belongs to the name of the model, as in timm:resnet18.a1_in1k"
            if kind == "timm"
            else "give a file of weights; names such as DEFAULT are those of torchvision and timm, and a model of "
            "transformers comes with its own",
        )
    try:
        weights: dict[str, torch.Tensor] = make(**arguments).state_dict()
    except (OSError, RuntimeError, ValueError) as error:
        raise SpecError(
            f"the weights `{name}` of `{source}` cannot be loaded: {first_line(error)}", key="model.weights", hint=hint
        ) from error
    return weights


def _chosen(model: str, name: str) -> Any:
    """The member of torchvision's enumeration of a model's weights."""
    from torchvision.models import get_model_weights, list_models

    _require(model, list_models(), "torchvision")
    members = get_model_weights(model).__members__
    if name not in members:
        raise SpecError(
            f"torchvision's `{model}` has no weights with the name `{name}`",
            key="model.weights",
            hint=f"it has {listed(list(members), 'and')}" if members else "torchvision has none for it; give a file",
        )
    return members[name]


def _of_torchvision(name: str) -> Callable[..., Any]:
    from torchvision import models

    _require(name, models.list_models(), "torchvision")
    return partial(models.get_model, name)


def _of_timm(name: str) -> Callable[..., Any]:
    timm = imported("timm", "model.from")
    _require(name.partition(".")[0], timm.list_models(), "timm")
    return partial(timm.create_model, name)


def _require(name: str, known: Sequence[str], library: str) -> None:
    if name not in known:
        meant = nearest(name, known)
        hint = did_you_mean(meant, f"see {library}'s `list_models()`")
        raise SpecError(f"{library} has no model `{name}`", key="model.from", hint=hint)
