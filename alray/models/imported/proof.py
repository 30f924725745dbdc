"""The proof that the chain of a model's parts computes what the whole model computes.

Both compute three small mini-batches from the same weights and the same random numbers, two in training and one in
evaluation. Scores, gradients, buffers, and the state of the generators afterwards must agree; of a model that is cut by
its list of layers, so must what each layer gets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn

from alray.config.sections.section import listed
from alray.config.user_code import own_place, own_problem
from alray.core.compat import tree_leaves
from alray.core.counting import counted
from alray.core.errors import FAULTS_OF_USER_CODE, Problem, SpecError
from alray.core.randomness.generators import put_back, seed_all
from alray.models.imported.trace import first_line
from alray.models.imported.watch import attributes, changed, draws_so_far, line_of_change
from alray.models.shape import Shape
from alray.models.token_embedding import PADDING

MINI_BATCHES = ((True, 2), (True, 2), (False, 1))
"""Whether it is one of training, and its number of samples. Gradients are computed of the first one only."""
_GRADIENT = "the gradient"
_ROUNDING = 1e-5
"""How far values may be apart, over the largest one: kernels on several threads may add in another order."""
_ROUNDING_PACKED = 1e-3
"""The same where several tensors travel as one: they come in other strides, which take other kernels."""
_LEAST = 1e-6
"""Times the largest gradient of the model: gradients that are smaller are compared with this."""
_CPU = torch.device("cpu")

Found = dict[str, torch.Tensor | None]
"""Tensors by the words for them in a message."""


def prove(
    whole: nn.Module,
    chain: Sequence[nn.Module],
    sample: Shape,
    title: str,
    *,
    model: nn.Module | None = None,
    frozen: Collection[str] = (),
    packed: bool = False,
    layers: Mapping[str, int] | None = None,
) -> None:
    """Raise SpecError, at the line of `forward` where it is known, if the chain computes otherwise than the whole
    model, or if the model keeps something from one call to the next that no checkpoint holds.

    Global generators stay as they were. Buffers of both change.

    Args:
        chain: with the whole model's parameters, and copies of its buffers.
        sample: the shape of one sample.
        title: of the model, in errors.
        model: the user's, where `whole` is a module around it; None: `whole` itself.
        frozen: paths of modules that compute as in evaluation.
        packed: whether several tensors travel as one between parts.
        layers: paths of layers, each with the number of the module in the chain that has it: what they get must agree,
            too. Then all must be equal in every bit, and texts are shorter in evaluation than in training.
    """
    model = whole if model is None else model
    weights = {name: each.detach().clone() for name, each in whole.named_parameters()}
    given = torch.Generator().manual_seed(0)
    hint = sample.hint_of_numbers
    kept: dict[str, dict[str, object]] = {}
    rounding = 0.0 if layers is not None else _ROUNDING_PACKED if packed else _ROUNDING
    with put_back(), torch.device("cpu"):
        for number, (training, count) in enumerate(MINI_BATCHES):
            samples, mask = _samples(sample, count, given, shorter=layers is not None and not training)
            for module in (whole, *chain):
                module.train(training)
            for path in frozen:
                whole.get_submodule(path).eval()
            before = buffers_of((whole,))
            with torch.set_grad_enabled(training):
                expected, found = (
                    _computed(
                        modules, whole, samples, mask, number, title, model, layers or {}, hint, gradients=number == 0
                    )
                    for modules in ((whole,), chain)
                )
            if number == 0:
                _require_gradients(expected, type(model), title)
            unknown: Found = {f"the buffer `{name}`": value for name, value in before.items()}
            _require_same(expected, unknown | found, type(model), title, rounding, training=training)
            if number > 0 and training:  # the first mini-batch may fill caches
                compute = partial(whole, samples.clone(), *(() if mask is None else (mask,)))
                _require_no_state({**dict(whole.named_modules()), "": model}, kept, title, compute)
            kept = {
                path: attributes(module, buffers=False)
                for path, module in {**dict(whole.named_modules()), "": model}.items()
            }
        for name, value in whole.named_parameters():
            if not torch.equal(value, weights[name]):
                raise _refused(f"changes the values of the parameter `{name}`", type(model), title)


def _samples(
    sample: Shape, count: int, generator: torch.Generator, *, shorter: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Random samples, and of documents the mask of their words: each but the first is shorter than the one before.

    Args:
        shorter: whether texts have half of their length.
    """
    if sample.whole_numbers is None:
        return torch.randn((count, *sample), generator=generator, dtype=sample.dtype), None
    length = max(sample[0] // 2, 1) if shorter and sample.is_text else sample[0]
    samples = torch.randint(sample.whole_numbers, (count, length), generator=generator, dtype=sample.dtype)
    if sample.words is None:
        return samples, None
    lengths = torch.tensor([max(length - number * length // count, 1) for number in range(count)])
    mask = torch.arange(length) < lengths.unsqueeze(1)
    return samples.masked_fill(~mask, PADDING), mask


def buffers_of(modules: Sequence[nn.Module]) -> dict[str, torch.Tensor]:
    """Copies of all buffers, by name."""
    return {name: each.detach().clone() for module in modules for name, each in module.named_buffers()}


def _computed(
    modules: Sequence[nn.Module],
    whole: nn.Module,
    samples: torch.Tensor,
    mask: torch.Tensor | None,
    number: int,
    title: str,
    model: nn.Module,
    layers: Mapping[str, int],
    hint: str | None,
    *,
    gradients: bool,
) -> Found:
    """What modules one after the other make of a mini-batch.

    Args:
        hint: what to do where they do not take it; None: nothing special.
    """
    seed_all(_CPU, number, "proof")
    value = samples.clone()
    found: Found = {}
    try:
        with ExitStack() as watched:
            for path, number_in_chain in layers.items():
                layer = modules[number_in_chain if len(modules) > 1 else 0].get_submodule(path)
                watched.enter_context(layer.register_forward_pre_hook(partial(_note, found, path), with_kwargs=True))
            for module in modules:
                value = module(value) if mask is None else module(value, mask)
        found["scores"] = value.detach()
        if gradients:
            found |= _gradients(value, whole)
    except FAULTS_OF_USER_CODE as error:
        message = (
            f"{title} fails on {counted(len(samples), 'sample')} of {tuple(samples.shape[1:])}: {first_line(error)}"
        )
        hint = (
            hint
            or "correct its `forward`; if it wants other samples, set data.image_size or give other arguments by `with`"
        )
        problem = own_problem(error, message, key="model.from", hint=hint)
        if problem is None:
            file, line = own_place(type(model).forward) or (None, None)
            problem = Problem(message, hint, file, line, "model.from")
        raise SpecError.of((problem,)) from error
    found |= {f"the buffer `{name}`": each for name, each in buffers_of(modules).items()}
    return found | {"random numbers drawn": torch.frombuffer(bytearray(draws_so_far()), dtype=torch.uint8)}


def _note(found: Found, path: str, layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Keep the tensors that a layer gets."""
    tensors = [each for each in tree_leaves((given, named)) if isinstance(each, torch.Tensor)]
    for number, each in enumerate(tensors):
        which = "argument" if number == 0 else f"argument {number + 1}"
        found[f"what the layer `{path}` gets ({which})"] = each.detach().clone()


def _gradients(scores: torch.Tensor, whole: nn.Module) -> Found:
    trained = {name: each for name, each in whole.named_parameters() if each.requires_grad}
    if not scores.requires_grad:
        return {f"{_GRADIENT} of `{name}`": None for name in trained}
    loss = (scores * torch.linspace(-1.0, 1.0, scores.numel()).view(scores.shape)).sum()
    found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    return {f"{_GRADIENT} of `{name}`": each for name, each in zip(trained, found, strict=True)}


def _require_gradients(expected: Found, model: type[nn.Module], title: str) -> None:
    """Raise SpecError if the model has parameters to train, and its result has a gradient for none of them."""
    gradients = [each for what, each in expected.items() if what.startswith(_GRADIENT)]
    if gradients and all(each is None for each in gradients):
        raise _refused(
            "gives a result without a gradient, so none of its parameters would be trained",
            model,
            title,
            hint="leave torch.no_grad(), detach() or the like out around what is to be trained; to train a head alone, "
            "freeze the other parameters by `requires_grad_(False)`",
        )


def _require_same(
    expected: Found, found: Found, model: type[nn.Module], title: str, rounding: float, *, training: bool
) -> None:
    gradients = [each for what, each in expected.items() if what.startswith(_GRADIENT) and each is not None]
    least = _LEAST * max((float(each.abs().max()) for each in gradients if each.numel()), default=0.0)
    for what, value in expected.items():
        other = found.get(what)
        if value is other or (value is not None and other is not None and _close(value, other, rounding, least)):
            continue
        mode = "training" if training else "evaluation"
        raise _refused(f"computes otherwise as a whole than in parts: in {mode}, {what} differ", model, title)


def _close(value: torch.Tensor, other: torch.Tensor, rounding: float, least: float) -> bool:
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    if torch.equal(value, other):
        return True
    if not value.is_floating_point():
        return False
    apart = (value - other).nan_to_num().abs().max()
    return torch.equal(value.isnan(), other.isnan()) and bool(
        apart <= rounding * max(float(value.nan_to_num().abs().max()), least)
    )


def _require_no_state(
    modules: Mapping[str, nn.Module], kept: dict[str, dict[str, object]], title: str, compute: Callable[[], object]
) -> None:
    """Raise SpecError if the last mini-batch has changed attributes of a module: no checkpoint holds them."""
    for path, module in modules.items():
        names = changed(kept[path], module, buffers=False)
        if not names:
            continue
        has_changed = partial(changed, attributes(module, buffers=False), module, buffers=False)
        place = line_of_change(compute, has_changed)
        file, line = place or own_place(type(module).forward) or (None, None)
        what = listed([".".join(part for part in (path, name) if part) for name in sorted(names)], "and")
        problem = Problem(
            f"`forward` of {title} keeps {what} from one call to the next, and no checkpoint would hold it",
            "keep it in a buffer (`register_buffer`), so that a run that is resumed ends in the same weights",
            file,
            line,
            "model.from",
        )
        raise SpecError.of((problem,))


_TRACED = (
    "a trace keeps the operations on what the input gives: move other code into a separate submodule, which then stays "
    "in one piece and computes as it is written; what lasts from one call to the next must be a buffer there"
)


def _refused(what: str, model: type[nn.Module], title: str, hint: str = _TRACED) -> SpecError:
    """The refusal of a model, at the line of its `forward`."""
    file, line = own_place(model.forward) or (None, None)
    return SpecError.of((Problem(f"`forward` of {title} {what}", hint, file, line, "model.from"),))
