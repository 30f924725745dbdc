"""Suggests a key or a value for an unknown one: by the name that other libraries use, or a key in the section where it
belongs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from alray.config.sections.grammar import key_types, sections_of
from alray.config.sections.paths import Path, key_text
from alray.config.sections.section import Section, nearest
from alray.config.sections.spec import Spec

_USUAL = {
    "learning_rate": "lr",
    "base_lr": "lr",
    "l2": "weight_decay",
    "wd": "weight_decay",
    "grad_clip": "clip_norm",
    "gradient_clip_val": "clip_norm",
    "max_grad_norm": "clip_norm",
    "grad_accum": "accumulate",
    "gradient_accumulation_steps": "accumulate",
    "scheduler": "lr_schedule",
    "bs": "batch_size",
    "val_split": "validation_fraction",
    "validation_split": "validation_fraction",
    "num_epochs": "epochs",
    "max_epochs": "epochs",
    "max_steps": "steps",
    "iterations": "steps",
    "early_stopping": "stop_at",
    "mixed_precision": "precision",
    "net": "model",
    "network": "model",
    "layers": "components",
    "random_seed": "seed",
    "class_weight": "class_weights",
    "stratify": "split_by_classes",
    "stratified": "split_by_classes",
    "sep": "delimiter",
    "separator": "delimiter",
    "ema": "ema_decay",
    "model_ema": "ema_decay",
    "monitor": "metric",
    "loss": "task",
    "loss_fn": "task",
    "criterion": "task",
}
"""Names that other libraries use, and the keys of a spec."""


_USUAL_VALUES = {
    "gpu": "cuda",
    "conv": "vgg",
    "conv2d": "vgg",
    "cnn": "vgg",
    "dense": "linear",
    "fc": "linear",
    "resnet": "residual",
    "rnn": "lstm",
    "gru": "lstm",
    "attention": "transformer",
    "mnist": "torchvision",
    "cifar10": "torchvision",
    "cifar100": "torchvision",
    "images": "image_folder",
    "texts": "text_folder",
    "bfloat16": "bf16",
    "amp": "bf16",
    "f1": "macro_f1",
    "f1_macro": "macro_f1",
    "fp32": "float32",
    "rmsprop": "torch",
    "reduce_on_plateau": "plateau",
    "reducelronplateau": "plateau",
    "onecycle": "one_cycle",
    "onecyclelr": "one_cycle",
}
"""Values that other libraries or papers use, and those of a spec."""
_PART = 3
"""Letters of a word that may stand for a longer one, such as `csv` for `text_csv`."""


def value_meant(word: str, known: Iterable[str]) -> str | None:
    """The one of the `known` values of a key that was probably meant."""
    known = list(known)
    usual = _USUAL_VALUES.get(word.lower())
    if usual in known or (usual := nearest(word, known)) is not None:
        return usual
    whole = [each for each in known if len(word) >= _PART and word.lower() in each]
    return whole[0] if len(whole) == 1 else None


def key_here(word: str, known: Iterable[str]) -> str | None:
    """The one of the `known` keys of a section that was probably meant."""
    known = list(known)
    usual = _usual(word)
    return usual if usual in known else nearest(word, known)


def key_elsewhere(word: str, root: type[Section] = Spec, around: Path = ()) -> str | None:
    """The key of this name in the grammar, such as `run.epochs`: the only one, or the only one that is not deeper.

    None if there is no such key, or if it lies in the section `around` itself, where another kind has it. Entries of
    lists are not looked at.
    """
    for name in (word, _usual(word)):
        found = _by_name(root).get(name or "", ())
        highest = [path for path in found if len(path) == min(map(len, found))]
        if len(highest) == 1 and around not in (highest[0], highest[0][:-1]):
            return key_text(highest[0])
    return None


def asked(meant: str) -> str:
    """The hint that asks whether a key, or an override, was meant."""
    remark = " With local losses it limits the gradients of each component alone" if "clip_norm" in meant else ""
    return f"did you mean `{meant}`?{remark}"


def _usual(word: str) -> str | None:
    return _USUAL.get(word.lower().replace("-", "_"))


@cache
def _by_name(root: type[Section]) -> dict[str, tuple[Path, ...]]:
    found: dict[str, tuple[Path, ...]] = {}
    for path in dict.fromkeys(_paths(root, ())):
        name = str(path[-1])
        found[name] = (*found.get(name, ()), path)
    return found


def _paths(section: type[Section], around: Path) -> Iterator[Path]:
    for name, annotation in key_types(section).items():
        yield (*around, name)
        for inner in sections_of(annotation):
            yield from _paths(inner, (*around, name))
