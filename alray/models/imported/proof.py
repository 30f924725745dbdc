"""The proof that the chain of a model's parts computes what the whole model computes.

Both compute three small mini-batches from the same weights and the same random numbers, two in training and one in
evaluation. Scores, gradients, buffers, and the state of the generators afterwards must agree.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Collection, Mapping, Sequence

import numpy
import torch
from torch import nn

from alray.config.sections.section import listed
from alray.config.user_code import own_place, own_problem
from alray.core.counting import counted
from alray.core.errors import FAULTS_OF_USER_CODE, Problem, SpecError
from alray.core.randomness.generators import put_back, seed_all
from alray.models.encoder import row_major
from alray.models.imported.calls import buffers_of, first_line, scores_of
from alray.models.imported.cutting import Refused, reason_of, samples_of
from alray.models.imported.identity import attributes
from alray.models.imported.part import Part
from alray.models.imported.steps import without_fused_attention
from alray.models.shape import Shape

MINI_BATCHES = ((True, 2), (True, 3), (False, 1))
"""Whether it is one of training, and its number of samples. Gradients are computed of the first one only."""
_GRADIENT = "the gradient"
_ROUNDING = 1e-5
"""How far values may be apart, over the largest one: kernels on several threads may add in another order."""
_LEAST = 1e-6
"""Times the largest gradient of the model: gradients that are smaller are compared with this."""
_CPU = torch.device("cpu")

Found = dict[str, torch.Tensor | None]
"""Tensors by the words for them in a message."""


def prove(
    whole: nn.Module,
    original: nn.Module,
    chain: Sequence[Part],
    sample: Shape,
    title: str,
    *,
    frozen: Collection[str] = (),
) -> None:
    """Raise Refused if the chain fails, or computes otherwise than the whole model; SpecError, at the line of `forward`
    where it is known, if the whole fails, or keeps something from one call to the next that no checkpoint holds.

    Global generators stay as they were. Buffers of both change.

    Args:
        original: the model that `whole` is a copy of.
        chain: with the whole model's parameters, and copies of its buffers.
        sample: the shape of one sample.
        title: of the model, in errors.
        frozen: paths of modules that compute as in evaluation.
    """
    weights = dict(original.named_parameters())
    given = torch.Generator().manual_seed(0)
    kept: dict[str, dict[str, str]] = {}
    with put_back(), torch.device("cpu"), without_fused_attention():
        for number, (training, count) in enumerate(MINI_BATCHES):
            shorter = max(sample[0] // 2, 1) if sample.is_text and not training else None
            samples, mask = samples_of(sample, count, shorter, given)
            for module in (whole, *chain):
                module.train(training)
            for path in frozen:
                whole.get_submodule(path).eval()
            before = buffers_of((whole,))
            with torch.set_grad_enabled(training):
                try:
                    expected = _computed((), whole, samples, mask, number)
                except FAULTS_OF_USER_CODE as error:
                    raise fault_of(error, type(whole), title, sample, counted(count, "sample")) from error
                try:
                    found = _computed(chain, whole, samples, mask, number)
                except FAULTS_OF_USER_CODE as error:
                    raise Refused(reason_of(error)) from error
            unknown: Found = {f"the buffer `{name}`": value for name, value in before.items()}
            _require_same(expected, unknown | found, training=training)
            now = {path: attributes(module) for path, module in whole.named_modules()}
            if number > 0 and training:  # the first mini-batch may fill caches
                _require_no_state(whole, kept, now, title)
            kept = now
        for name, value in whole.named_parameters():
            if not torch.equal(value, weights[name]):
                what = f"changes the values of the parameter `{name}`"
                raise refusal(
                    what,
                    type(whole),
                    title,
                    hint="keep what `forward` changes in a buffer; if the first call alone changes it, call the module "
                    "before you give it",
                )


def draws_so_far() -> bytes:
    """The state of all global generators."""
    of_torch = torch.random.get_rng_state().numpy().tobytes()
    return pickle.dumps((random.getstate(), numpy.random.get_state(legacy=False), of_torch))


def _computed(
    chain: Sequence[Part], whole: nn.Module, samples: torch.Tensor, mask: torch.Tensor | None, number: int
) -> Found:
    """What the parts one after the other make of a mini-batch, or the whole where there are none."""
    seed_all(_CPU, number, "proof")
    if chain:
        passing = {"s": samples.clone()} | ({} if mask is None else {"mask": mask})
        for part in chain:
            passing = {name: row_major(each) for name, each in part(passing).items()}
        scores = passing["s"]
    else:
        scores = scores_of(whole, samples.clone(), mask)
    found: Found = {"scores": scores.detach()}
    if number == 0:
        found |= _gradients(scores, whole)
    found |= {f"the buffer `{name}`": each for name, each in buffers_of(chain or (whole,)).items()}
    return found | {"random numbers drawn": torch.frombuffer(bytearray(draws_so_far()), dtype=torch.uint8)}


def _gradients(scores: torch.Tensor, whole: nn.Module) -> Found:
    trained = {name: each for name, each in whole.named_parameters() if each.requires_grad}
    found: Sequence[torch.Tensor | None] = [None] * len(trained)
    if scores.requires_grad:
        loss = (scores * torch.linspace(-1.0, 1.0, scores.numel()).view(scores.shape)).sum()
        found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    return {f"{_GRADIENT} of `{name}`": each for name, each in zip(trained, found, strict=True)}


def _require_same(expected: Found, found: Found, *, training: bool) -> None:
    gradients = [each for what, each in expected.items() if what.startswith(_GRADIENT) and each is not None]
    least = _LEAST * max((float(each.abs().max()) for each in gradients if each.numel()), default=0.0)
    for what, value in expected.items():
        other = found.get(what)
        if value is other or (value is not None and other is not None and _close(value, other, least)):
            continue
        mode = "training" if training else "evaluation"
        raise Refused(f"{what} would be other than of the whole in {mode}")


def _close(value: torch.Tensor, other: torch.Tensor, least: float) -> bool:
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    if torch.equal(value, other) or not value.is_floating_point():
        return torch.equal(value, other)
    limit = _ROUNDING * max(float(value.nan_to_num().abs().max()), least)
    return torch.allclose(value, other, rtol=0.0, atol=limit, equal_nan=True)


def _require_no_state(
    whole: nn.Module, kept: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]], title: str
) -> None:
    """Raise SpecError if the last mini-batch has changed attributes of a module: no checkpoint holds them."""
    for path, after in now.items():
        before = kept[path]
        names = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
        if names:
            what = listed([f"{path}.{name}".removeprefix(".") for name in names], "and")
            raise refusal(
                f"keeps {what} from one call to the next, and no checkpoint would hold it",
                type(whole.get_submodule(path)),
                title,
                hint="keep it in a buffer (`register_buffer`), so that a run that is resumed ends in the same weights; "
                "or in no attribute, if the same call alone needs it; or return it with the scores, for a `loss`",
            )


def refusal(what: str, model: type[nn.Module], title: str, hint: str, error: Exception | None = None) -> SpecError:
    """The refusal of a model: at the line of a user's code that raised an error, else at that of its `forward`."""
    message = f"`forward` of {title} {what}"
    problem = None if error is None else own_problem(error, message, key="model.from", hint=hint)
    if problem is None:
        file, line = own_place(model.forward) or (None, None)
        problem = Problem(message, hint, file, line, "model.from")
    return SpecError.of((problem,))


def fault_of(error: Exception, model: type[nn.Module], title: str, sample: Shape, samples: str) -> SpecError:
    """The refusal of a model that fails on samples.

    Args:
        sample: the shape of one.
        samples: in words.
    """
    given = f"{samples} of {tuple(sample)}" if sample.several is None else "the inputs of a sample"
    hint = sample.hint_of_numbers or _hint_of_shape(sample)
    if isinstance(error, TypeError):
        hint = (
            "give samples that are dictionaries with the names of its arguments, or tuples in their order and the "
            "label last, and leave out what it does not take; `forward(self, **batch)` takes all entries"
        )
    return refusal(f"does not take {given}: {first_line(error)}", model, title, hint, error)


def _hint_of_shape(sample: Sequence[int]) -> str:
    """What to do where a module does not take samples of this shape."""
    if len(sample) == 3 and sample[-1] in (1, 3) and sample[0] not in (1, 3):
        return "give the channels first, as by samples.permute(0, 3, 1, 2)"
    if len(sample) != 3:
        pictures = "give pictures a channel, as by samples.unsqueeze(1); else " if len(sample) == 2 else ""
        return f"{pictures}correct its layers, or their sizes by `with`, or give other samples"
    return (
        "set data.channels to 3 for grey pictures, or data.image_size, or give constructor arguments by `with`, if it "
        "wants other samples"
    )
