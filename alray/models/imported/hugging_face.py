"""Models of Hugging Face's library transformers: a class with its config, a folder, or a name on the hub."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from alray.config.sections.model import TRANSFORMERS
from alray.config.sections.section import did_you_mean, listed, nearest
from alray.core.errors import FAULTS_OF_USER_CODE, RequestError, SpecError
from alray.core.packages import imported
from alray.models.imported.calls import first_line
from alray.models.shape import Shape

_ATTENTION = "attn_implementation"
"""The key of `with` that chooses how attention is computed. No config keeps it."""
_DROPS_LAYERS = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")
"""Keys of configs with the probability that a whole layer is left out in training."""
_OF_LIBRARY = frozenset({"_name_or_path", "architectures", "dtype", "id2label", "label2id", "transformers_version"})
"""What a config keeps besides the arguments of a model."""


def made_of(name: str, arguments: Mapping[str, Any], sample: Shape, *, trained: bool) -> tuple[nn.Module, list[str]]:
    """The model that a spec names after `transformers:`, in float32, and sentences on weights that the seed drew.

    Raises SpecError.

    Args:
        name: a class, such as GPT2LMHeadModel; a folder with a config, and perhaps weights; or a name on the hub.
        arguments: of the config.
        sample: the shape of one sample, which tells the task: the next token, or a class of a document or picture.
        trained: whether weights will be loaded from a checkpoint, so that those of the folder are not read.
    """
    library = _library()
    given = dict(arguments)
    attention = {_ATTENTION: given.pop(_ATTENTION)} if _ATTENTION in given else {}
    with _quietly(library), _explained(name):
        if (kind := _class_of(library, name)) is not None:
            config = _config(kind.config_class, given, attention)
            _require_fitting(config)
            return kind(config), []
        config, unknown = library.AutoConfig.from_pretrained(
            name, return_unused_kwargs=True, trust_remote_code=False, **given
        )
        _require_known(unknown, config)
        _require_fitting(config)
        chosen = _class_for(library, sample)
        if trained or not _has_weights(name):
            return chosen.from_config(config, dtype=torch.float32, trust_remote_code=False, **attention), []
        model, loading = chosen.from_pretrained(
            name,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,  # nothing is unpickled
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **attention,
        )
    drawn = sorted({*loading["missing_keys"], *(each[0] for each in loading["mismatched_keys"])})
    notes = []
    if drawn:
        layers = {each.rpartition(".")[0] for each in drawn}
        notes.append(
            f"{listed(sorted(layers), 'and')} of `{TRANSFORMERS}{name}`: the weights are drawn by the seed, because it "
            "has none of this name and shape"
        )
    return model, notes


def _require_fitting(config: Any) -> None:
    """Raise SpecError where a config drops layers."""
    for key in _DROPS_LAYERS:
        if getattr(config, key, 0):
            raise SpecError(
                f"the model drops whole layers in training (`{key}`), and a component cannot be left out",
                key=f"model.with.{key}",
                hint="set it to 0",
            )


def _library() -> Any:
    return imported("transformers", "model.from")


def _class_of(library: Any, name: str) -> Any:
    """The class of models with this name; None if there is none."""
    found = getattr(library, name, None) if name.isidentifier() else None
    return found if inspect.isclass(found) and issubclass(found, library.PreTrainedModel) else None


def _class_for(library: Any, sample: Shape) -> Any:
    if sample.tokens is not None:
        return library.AutoModelForCausalLM
    return (
        library.AutoModelForSequenceClassification
        if sample.words is not None or sample.numbers is not None
        else library.AutoModelForImageClassification
    )


def _config(kind: type, given: Mapping[str, Any], attention: Mapping[str, Any]) -> Any:
    """Raises SpecError for a key that the config does not have: it would keep it without a word."""
    known = kind()
    _require_known({key: value for key, value in given.items() if not hasattr(known, key)}, known)
    return kind(**given, **attention)


def _require_known(unknown: Mapping[str, Any], config: Any) -> None:
    for key in unknown:
        keys = [*config.to_dict(), *config.attribute_map, "num_labels", _ATTENTION]
        meant = nearest(key, keys)
        raise SpecError(
            f"`{type(config).__name__}` has no key `{key}`",
            key=f"model.with.{key}",
            hint=did_you_mean(meant, "the documentation of transformers has its keys"),
        )


def _has_weights(name: str) -> bool:
    """Whether a folder has weights; those of a name on the hub are looked for there."""
    folder = Path(name)
    return not folder.is_dir() or any(each.suffix in (".safetensors", ".bin") for each in folder.iterdir())


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except SpecError:
        raise
    except FAULTS_OF_USER_CODE as error:  # its classes raise what they like
        raise SpecError(
            f"`{TRANSFORMERS}{name}` cannot be made: {first_line(error)}",
            key="model.from",
            hint="name a class of transformers, such as GPT2LMHeadModel, with its config in `with`; a folder, which "
            "begins with `./` or `/`; or a model on the hub, once where there is a network",
        ) from error


@contextmanager
def _quietly(library: Any) -> Iterator[None]:
    """Without the library's bars and warnings: alray says what is to be known."""
    logging = library.utils.logging
    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()


def as_arguments(model: Any) -> dict[str, Any]:
    """The arguments that make a model of the same class with the same config."""
    config: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=True))
    arguments = {key: value for key, value in config.items() if key not in _OF_LIBRARY and value is not None}
    return {**arguments, "num_labels": model.config.num_labels, _ATTENTION: model.config._attn_implementation}


def save(model: Any, folder: Path) -> None:
    """Write a model into a folder from which `from_pretrained` of its class loads it. Raises RequestError if it is
    none of transformers."""
    if not hasattr(model, "save_pretrained"):
        raise RequestError(
            f"a `{type(model).__name__}` is no model of transformers, which `from_pretrained` could load",
            key="--format",
            hint="export state_dict",
        )
    with _quietly(_library()):
        model.save_pretrained(folder)
