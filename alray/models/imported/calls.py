"""How a model is copied and called, and where its scores are in what it gives."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from alray.core.errors import FAULTS_OF_USER_CODE, SpecError
from alray.models.several import OF_MODEL


def scores_of(model: nn.Module, samples: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
    """The scores that a model gives for samples: all that it returns, or `logits` of an output of transformers.

    Args:
        mask: [N, T] bool of documents; it has the type and the name that transformers gives it, if the model has this
            name.
    """
    parameters = inspect.signature(model.forward).parameters
    named: dict[str, Any] = {}
    if "use_cache" in parameters:
        named["use_cache"] = False  # of generation
    inputs = vars(model).get(OF_MODEL)
    if mask is not None and inputs is None:
        named |= {"attention_mask": mask.long()} if "attention_mask" in parameters else {"mask": mask}
    result = model(samples, **named) if inputs is None else inputs.called(model, samples, **named)
    return getattr(result, "logits", result)


def takes_documents(model: nn.Module) -> bool:
    """Whether a model is told the mask of documents of different lengths."""
    return bool({"attention_mask", "mask"} & inspect.signature(model.forward).parameters.keys())


def copy_of(model: nn.Module, title: str, shared: Iterable[nn.Parameter] = ()) -> nn.Module:
    """A copy of a model. Raises SpecError where it cannot be copied.

    Args:
        shared: parameters for the copy, one for each of the model, in order; none: it gets copies of the model's.
    """
    memo: dict[int, Any] = {id(each): other for each, other in zip(model.parameters(), shared, strict=False)}
    try:
        return copy.deepcopy(model, memo)
    except FAULTS_OF_USER_CODE as error:
        raise SpecError(
            f"{title} cannot be copied: {first_line(error)}",
            key="model.from",
            hint="keep no results of computations, open files or locks in its attributes; the old "
            "torch.nn.utils.weight_norm does, that of torch.nn.utils.parametrizations does not",
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its name if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def buffers_of(modules: Iterable[nn.Module]) -> dict[str, torch.Tensor]:
    """Copies of all buffers, by name."""
    return {name: each.detach().clone() for module in modules for name, each in module.named_buffers()}


def named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and then the buffers, by each of their names."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
