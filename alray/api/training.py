"""`alray.train`: training of a module without a spec, which is made of the arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from alray.api.calls import checked, teller
from alray.api.objects import taken
from alray.api.runs import Run, run, run_taken
from alray.config.loading.messages import key_elsewhere
from alray.config.loading.yaml_text import write_yaml
from alray.config.sections.run import LENGTHS
from alray.config.sections.section import describe, did_you_mean, nearest
from alray.config.sections.spec import NAME, Spec
from alray.core.errors import RequestError

_OPTIONS = frozenset(inspect.signature(run).parameters) - {"spec", "overrides"} - frozenset(Spec.model_fields)
"""What `run` takes besides a spec."""
_GIVEN = {"model": "from", "data": "source"}
"""The sections of which `train` gets the main key as an object."""


@checked
def train(
    module: Any,
    train: Any,
    validation: Any = None,
    test: Any = None,
    *,
    method: Any = "decoupled_greedy",
    stages: int = 2,
    epochs: int = 3,
    loss: Any = None,
    metrics: Sequence[Any] = (),
    progress: bool = True,
    **keys: Any,
) -> Run:
    """Train a module on data, as `alray.run` does with the spec that these arguments make, which is shown.

    Raises as `alray.run`.

    Args:
        module: as `model` of `alray.run`.
        train, validation, test: sets, as in `data` of `alray.run`. Without `validation`, a part of the training set is
            taken: `data={"validation_fraction": 0.1}`.
        method: its name, a section, or a class.
        stages: on how many processes the components lie.
        epochs: passes over the training set, unless `run` gives another length.
        loss: a function of (outputs, labels), or a module of torch such as `nn.CrossEntropyLoss(label_smoothing=0.1)`:
            the mean over samples. Outputs are those of the module, and labels come as the data have them. None: that of
            the task.
        metrics: functions of (outputs, labels), or objects of torchmetrics, which measure the whole set; they go with
            `loss`. The first one chooses the best checkpoint. Its highest value is the best, unless its attribute
            `higher_is_better` is False or `task={"metric": "cost"}` says so. Without metrics the loss is measured.
        progress: show the spec, the run and its results.
        keys: further sections and keys of the spec, such as `optimizer={"kind": "sgd", "lr": 0.1}`, `seed=1` or
            `data={"batch_size": 32}`; and what `alray.run` takes, such as `inline` and `output`.
    """
    known = (*Spec.model_fields, *sorted(_OPTIONS), "validation", "test", "stages", "epochs", "loss", "metrics")
    for key in keys.keys() - set(known):
        meant = f"run.{key}" if key in LENGTHS else nearest(key, known) or key_elsewhere(key)
        hint = did_you_mean(_as_argument(meant) if meant else None, f"known: {', '.join(known)}")
        raise RequestError("unknown argument", key=key, hint=hint)
    for section, key in _GIVEN.items():
        _require_further_keys(section, key, keys.get(section, {}))
    if validation is not None and keys.get("data", {}).get("validation_fraction"):
        raise RequestError(
            "a validation set is given, so no part of the training set becomes one",
            key="data.validation_fraction",
            hint="give one of the two",
        )
    task = keys.get("task")
    task = task.get("kind") if isinstance(task, Mapping) else task
    if callable(task) and not isinstance(task, type):
        raise RequestError("this is no kind of task", key="task", hint="give a function or a module as loss=...")
    options = {name: keys.pop(name) for name in list(keys) if name in _OPTIONS}
    made_of = getattr(module, "func", module)  # of a functools.partial
    name = getattr(made_of, "__name__", type(made_of).__name__)
    spec: dict[str, Any] = {
        "name": name.lower() if re.fullmatch(NAME, name) else "model",
        "method": method,
        "pipeline": {"stages": stages},
        "run": {} if _has_length(keys) else {"epochs": epochs},
    }
    for key, value in keys.items():
        both = isinstance(value, Mapping) and isinstance(spec.get(key), Mapping)
        spec[key] = {**spec[key], **value} if both else value
    alone = train is not None and validation is None and test is None
    data = train if alone else (train, validation, test)
    found = taken(spec, None, model=module, data=data, loss=loss, metrics=metrics)
    teller(progress)(write_yaml(found.spec).rstrip())
    return run_taken(found, progress=progress, **options)


def _require_further_keys(section: str, given: str, value: Any) -> None:
    """Raise RequestError unless a section is keys that go with the object that `train` was given."""
    key = section
    if not isinstance(value, Mapping):
        wrong = f"this is {describe(value)}"
    elif given in value:
        wrong, key = f"`{given}` was given already, as an object", f"{section}.{given}"
    elif isinstance(value.get("components"), list | tuple):
        wrong, key = "a module has no list of blocks", "model.components"
    else:
        return
    example = "{'components': 4}" if section == "model" else "{'batch_size': 32}"
    raise RequestError(wrong, key=key, hint=f"give further keys of the section alone, such as {section}={example}")


def _as_argument(key: str) -> str:
    """A key of the spec as `train` takes it: `optimizer={'lr': ...}` for `optimizer.lr`."""
    argument, *within = key.split(".")
    value = "..."
    for name in reversed(within):
        value = f"{{'{name}': {value}}}"
    return f"{argument}={value}" if within else argument


def _has_length(keys: Mapping[str, Any]) -> bool:
    section = keys.get("run")
    return isinstance(section, Mapping) and not section.keys().isdisjoint(LENGTHS)
