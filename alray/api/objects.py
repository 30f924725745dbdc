"""Objects in place of names: modules, data and classes that a Python program gives to a run.

A class or a function of a module with a file becomes a reference, `python:module.Name`, and what torch.optim and
torchvision have gets its name; such runs are resumed and reproduced as any other. All else goes by value, as
`object:NAME` (`alray.config.objects`).
"""

from __future__ import annotations

import copy
import importlib
import inspect
import io
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from alray.api.calls import Overrides, override_texts, teller
from alray.config.loading.composition import BASE
from alray.config.loading.load import SpecSource, directory_of, file_of, read_spec
from alray.config.loading.overrides import apply_overrides, override_text
from alray.config.loading.precedence import schedule_in
from alray.config.loading.yaml_text import plain
from alray.config.objects import LARGEST, NO_OBJECTS, Objects, Pickled, how_to_give, names_of
from alray.config.sections.data import SOURCES, OwnData
from alray.config.sections.own_code import LOSS, OBJECT, PREFIX
from alray.config.sections.paths import key_text, path_of
from alray.config.sections.section import Section, describe
from alray.config.sections.spec import Spec
from alray.config.sections.task import TASKS, Label
from alray.config.user_code import folder_to_name, is_users
from alray.core.errors import RequestError, SpecError
from alray.runtime.local_ray.ray_init import import_ray

if TYPE_CHECKING:
    from alray.data.given import GivenData

_CHOSEN_BY = ("kind", "from", "source", "block")
"""Keys whose value names a part."""
_OF_MAKING = ("with", "weights")
"""Keys of `model` that belong to what `from` names."""
_SAID_OF_DATA = ("classes", "numbers")
"""Keys of `data` that say how many there are, where data that a program gives do not."""


class Taken(NamedTuple):
    """A spec that names all its parts, its overrides as texts, and the objects behind the names."""

    spec: SpecSource
    overrides: list[str]
    objects: Objects


def taken(
    spec: SpecSource,
    overrides: Overrides,
    *,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    metrics: Sequence[Any] = (),
) -> Taken:
    """Put names in place of the objects in a spec and in its overrides.

    Raises an `alray.AlrayError` that says what to give.

    Args:
        model: in place of `model.from`.
        data: in place of `data.source`.
        loss, metrics: of the task of a spec that is a mapping.
    """
    names = _Names(None if isinstance(spec, Mapping | Section) else directory_of(file_of(spec)))
    if isinstance(spec, Mapping):
        if loss is not None or metrics:
            spec = {**spec, "task": _with_loss(names, loss, metrics, spec.get("task"))}
        spec = names.put_into(spec, ())
    if isinstance(overrides, Mapping):
        overrides = names.put_into_overrides(overrides)
    texts = override_texts(overrides)
    first: dict[str, Any] = {}
    if model is not None or data is not None:
        composed = read_spec(spec).copy()
        applied = apply_overrides(composed.value, texts, composed.locations)
        first = _sections(names, model, data, composed.value)
        # A section that an override gives as a whole is part of these, so nobody applies that override again.
        rest = [text for text in texts if text.partition("=")[0].strip() not in first]
        if len(rest) < len(texts) and applied.problems:
            raise SpecError.of(tuple(applied.problems))
        texts = rest
        if isinstance(spec, Mapping) and BASE not in spec:  # with sections of a base those of a dict would be merged
            spec, first = {**spec, **first}, {}
    return Taken(spec, [*override_texts(first), *texts], names.objects)


def taken_for_study(spec: SpecSource, overrides: Overrides, *, model: Any = None, data: Any = None) -> Taken:
    """`taken` for a study: the objects stand in its `set`, in place of what its base names."""
    from alray.config.study.load import study_of

    texts = override_texts(overrides)
    if model is None and data is None:
        return Taken(spec, texts, NO_OBJECTS)
    study = study_of(spec, texts)
    settings = [override_text(key, value) for key, value in study.set.items()]
    before = read_spec(study.base)
    apply_overrides(before.value, settings, before.locations)
    names = _Names(study.base.parent)
    sections = _sections(names, model, data, before.value)
    in_study = {f"set.{key}": value for key, value in sections.items()}
    return Taken(spec, [*texts, *override_texts(in_study)], names.objects)


def _sections(names: _Names, model: Any, data: Any, before: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a spec for this model and these data; None: they stay as the spec has them."""
    found = {} if data is None else _with_data(names, data, before)
    return found if model is None else {**found, "model": _with_model(names, model, before)}


def taken_overrides(overrides: Overrides) -> tuple[list[str], Objects]:
    """The overrides of a resume as texts, and the objects in them. Raises as `taken`."""
    names = _Names(None)
    if isinstance(overrides, Mapping):
        overrides = names.put_into_overrides(overrides)
    return override_texts(overrides), Objects(names.values)


def given_again(spec: Spec, objects: Mapping[str, Any]) -> Objects:
    """The objects of a run that its program gives again.

    Raises RequestError for one that the spec of the run does not have.

    Args:
        objects: by name, `model` for `object:model`; None: it is not given.
    """
    known, values = names_of(spec), dict[str, Any]()
    given = dict(objects)
    metrics = given.pop("metrics", None) or ()
    if given.get("loss") is not None or metrics:
        given["loss"] = _task_of(given.get("loss"), metrics)
    for name, value in given.items():
        if value is None or (name not in known and _is_named(value, spec)):
            continue
        if name not in known:
            has = f"its objects are {how_to_give(known)}" if known else "its spec names all that it needs"
            raise RequestError(f"this run has no object `{name}`: {has}", key=name, hint="leave it out")
        if name == "data" and not isinstance(value, type | FunctionType | partial):
            ignored = getattr(spec.task, "ignored", None)
            values[name] = _given_data(value, _label_in(spec.task.kind), getattr(spec.data, "fields", {}), ignored)
        else:
            values[name] = Pickled(_pickled(value.func if isinstance(value, partial) else value, name))
    return Objects(values)


def _is_named(value: Any, spec: Spec) -> bool:
    """Whether a spec names this class or function."""
    name = f"{PREFIX}{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    return name in (spec.model.source, spec.data.source)


class _Names:
    """Finds a name for each object, and keeps those that go by value."""

    def __init__(self, folder: Path | None) -> None:
        """
        Args:
            folder: that of the spec, in which `python:` references are looked for; None: that of the first class.
        """
        self._folder = folder
        self._is_free = folder is None
        self.values: dict[str, Any] = {}

    @property
    def objects(self) -> Objects:
        return Objects(self.values, self._folder if self._is_free else None)

    def put_into(self, value: Any, path: tuple[str | int, ...]) -> Any:
        """A value of a spec in which every object is a name.

        Args:
            path: of the value in the spec.
        """
        if isinstance(value, Mapping):
            made: dict[str, Any] = {}
            for key, inner in value.items():
                if str(key) in _CHOSEN_BY and _is_object(inner):
                    made |= self.section(inner, str(key), path)
                    if "lr" not in value:
                        made = _own_rate(inner) | made
                else:
                    made[str(key)] = self.put_into(inner, (*path, str(key)))
            return made
        if isinstance(value, list | tuple):
            return [self.put_into(inner, (*path, index)) for index, inner in enumerate(value)]
        if not _is_object(value):
            return plain(value, path)
        section = self.section(value, _KEY_OF.get(path[-1] if path else "", "kind"), path)
        section |= {} if "lr" in section else _own_rate(value)
        return section if len(section) > 1 or len(path) == 1 else next(iter(section.values()))

    def put_into_overrides(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Overrides in which every object is a name."""
        made: dict[str, Any] = {}
        for key, value in overrides.items():
            around, _, last = key.rpartition(".")
            if last in _CHOSEN_BY and _is_object(value):
                made |= {f"{around}.{name}": each for name, each in self.section(value, last, path_of(around)).items()}
            else:
                made[key] = self.put_into(value, path_of(key))
        return made

    def section(self, value: Any, key: str, path: tuple[str | int, ...]) -> dict[str, Any]:
        """The keys of a section that choose a part: its name by `key`, and of a `functools.partial` its arguments."""
        arguments: dict[str, Any] = {}
        if isinstance(value, partial):
            if value.args:
                message = f"a partial with positional arguments: {value!r}"
                raise RequestError(message, key=key_text(path), hint="give all of them by name")
            value, arguments = value.func, dict(value.keywords)
        if key == "from" and arguments:
            arguments = {"with": arguments}
        _refuse_what_belongs_to_a_network(value, key_text(path))
        if _is_of(value, "torch.optim") and isinstance(value, type):
            return {key: "torch", "name": value.__name__, **arguments}
        return {key: self.reference(value, key_text(path)), **arguments}

    def reference(self, value: Any, name: str) -> str:
        """A name for a class, a function or an instance."""
        if _is_of(value, "torchvision.models") and isinstance(value, FunctionType):
            return f"torchvision:{value.__name__}"
        root = folder_to_name(value) if isinstance(value, type | FunctionType) else None
        if root is not None and self._takes(root):
            return f"{PREFIX}{value.__module__}.{value.__qualname__}"
        self.values[name] = Pickled(_pickled(value, name))
        return f"{OBJECT}{name}"

    def _takes(self, root: Path) -> bool:
        """Whether references may name the classes of this folder: all must be of one."""
        if self._folder is None:
            self._folder = root
        return root == self._folder.resolve()


def _own_rate(value: Any) -> dict[str, float]:
    """The learning rate that an optimizer of torch has where none is said, as the key of its section."""
    from torch.optim import Optimizer

    kind = value.func if isinstance(value, partial) else value
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        return {}
    rate = inspect.signature(kind).parameters.get("lr")
    return {} if rate is None or rate.default is rate.empty else {"lr": float(rate.default)}


_KEY_OF: Mapping[str | int, str] = {"model": "from", "data": "source"}


def _is_object(value: Any) -> bool:
    """Whether a value of a spec is no value of YAML, but a class, a function or an instance that stands for a name."""
    return isinstance(value, type | FunctionType | partial) or callable(getattr(value, "state_dict", None))


def _is_of(value: Any, package: str) -> bool:
    module = getattr(value, "__module__", None) or ""
    return module == package or module.startswith(f"{package}.")


def _refuse_what_belongs_to_a_network(value: Any, key: str) -> None:
    """Raise RequestError for an optimizer of torch that was made for parameters, and for its schedules."""
    kind = value if isinstance(value, type) else type(value)
    name = kind.__name__
    if _is_of(kind, "torch.optim.lr_scheduler"):
        raise RequestError(
            f"a {name} of torch holds an optimizer, and each component has its own",
            key=key,
            hint="give {'kind': 'cosine'} or another schedule of alray, or a function of a moment (docs/extending.md)",
        )
    if _is_of(kind, "torch.optim") and value is not kind:
        raise RequestError(
            f"this {name} was made for the parameters of one module, and each component has an optimizer of its own",
            key=key,
            hint=f"give the class with its arguments: functools.partial(torch.optim.{name}, lr=...)",
        )


def _with_loss(names: _Names, loss: Any, metrics: Sequence[Any], task: Any) -> dict[str, Any]:
    """The section `task` of a loss and metrics, which may say of the first metric that its lowest value is the best:
    `{"metric": "cost"}`."""
    from alray.models.own_loss import higher_is_better

    if task is not None and not (isinstance(task, Mapping) and task.keys() <= {"metric"}):
        raise RequestError(
            "a loss of the program is a task by itself", key="task", hint="give one of the two, or of the task `metric`"
        )
    names.values[LOSS.removeprefix(OBJECT)] = Pickled(_pickled(_task_of(loss, metrics), "loss"))
    highest = len(metrics) > 0 and higher_is_better(metrics[0])
    return {"kind": LOSS, "metric": "score" if highest else "cost", **(task or {})}


def _task_of(loss: Any, metrics: Sequence[Any]) -> Any:
    """The class of the task. Raises RequestError for what is no loss, or no metric."""
    from alray.models.own_loss import task_of

    if loss is None:
        raise RequestError(
            "metrics of the program go with its loss",
            key="metrics",
            hint="give that too, such as loss=torch.nn.CrossEntropyLoss()",
        )
    if isinstance(loss, type) or not callable(loss):
        raise RequestError(
            f"this is {describe(loss)}",
            key="loss",
            hint="give a function of (outputs, labels), or an object, such as torch.nn.CrossEntropyLoss()",
        )
    if callable(getattr(loss, "parameters", None)) and any(each.requires_grad for each in loss.parameters()):
        raise RequestError(
            "this loss has parameters, which no optimizer would train",
            key="loss",
            hint="make them layers of the module, which gives what the loss takes",
        )
    return task_of(loss, metrics)


def _label_in(kind: Any) -> Label | None:
    """What the task of this kind takes as labels. Of a task of the user's it is not known: they stay as they are."""
    if kind == LOSS:
        return "any"
    return TASKS.sections[kind].label if kind in TASKS.sections else None


def _with_model(names: _Names, model: Any, before: Mapping[str, Any]) -> dict[str, Any]:
    """The section `model` for this model. What a spec says of its cut stays. How it is made stays too, if the spec does
    not say that of another model."""
    section = before.get("model")
    section = section if isinstance(section, Mapping) else {}
    if not _is_object(model):
        raise RequestError(
            f"this is {describe(model)}",
            key="model",
            hint="give a torch module, its class, or a function that makes one",
        )
    kept = {key: value for key, value in section.items() if key != "from"}
    if isinstance(kept.get("components"), list):
        del kept["components"]  # they are blocks
    chosen = names.section(model, "from", ("model",))
    if section.get("from", chosen["from"]) != chosen["from"]:
        kept = {key: value for key, value in kept.items() if key not in _OF_MAKING}
    return {**kept, **chosen}


def _with_data(names: _Names, data: Any, before: Mapping[str, Any]) -> dict[str, Any]:
    """The section `data` for these data, and the task if a spec names none. What a spec says of mini-batches, and the
    other keys of the task, stay."""
    section = before.get("data")
    section = section if isinstance(section, Mapping) else {}
    of_other = _keys_of_source(section) - OwnData.model_fields.keys() | {"source"}
    kept = {key: value for key, value in section.items() if key not in of_other}
    if isinstance(data, str):
        return {"data": {**kept, "source": data}}
    if isinstance(data, Mapping) and "source" in data:
        return {"data": {**kept, **names.put_into(data, ("data",))}}
    if isinstance(data, type | FunctionType | partial):
        return {"data": {**kept, **names.section(data, "source", ("data",))}}
    task = before.get("task")
    said = task if isinstance(task, Mapping) else {} if task is None else {"kind": task}
    kind = said.get("kind")  # without it, the labels say it, whatever other keys there are
    given = _given_data(data, _label_in(kind), section, said.get("ignored"))
    if "validation" in given.sets:
        kept.pop("validation_fraction", None)
        kept["brings_validation"] = True
    if given.batch_size is not None:
        kept.setdefault("batch_size", given.batch_size)
    if given.keeps_rest and "last_batch" not in kept:
        schedule = schedule_in(before)
        if schedule is not None and schedule.is_pipeline:
            note = (
                f"`{schedule.name}` takes mini-batches of one size: a smaller last one is dropped, though the loader "
            )
            given = replace(given, notes=(*given.notes, f"{note}keeps it (drop_last=False)"))
        else:
            kept["last_batch"] = "keep"
    names.values["data"] = given
    kept |= {key: section[key] for key in _SAID_OF_DATA if key in section}
    made = {"data": {**kept, "source": f"{OBJECT}data"}}
    of_labels = next((name for name, each in TASKS.sections.items() if each.label == given.label), None)
    if kind is not None or of_labels == TASKS.default:
        return made
    what = "rows of 0 and 1" if given.label == "flags" else "numbers in floating point"
    teller(progress=True)(f"the labels are {what}, so the task is {of_labels}; the key `task` says another one")
    return {**made, "task": {**said, "kind": of_labels} if said else of_labels}


def _keys_of_source(section: Mapping[str, Any]) -> Set[str]:
    """The keys of a section `data` that its source has. A class of the user may have any."""
    source = section.get("source")
    known = SOURCES.sections.get(source) if isinstance(source, str) else None
    return known.model_fields.keys() if known is not None else section.keys() if "source" in section else frozenset()


def _given_data(data: Any, label: Label | None, section: Mapping[str, Any], ignored: int | None) -> GivenData:
    from alray.data.given import given_data

    said = {key: section[key] for key in _SAID_OF_DATA if key in section}
    if ignored is not None:
        said["ignored"] = ignored
    return given_data(data, partial(_dumped, name="data"), label, **said)


def _pickled(value: Any, name: str) -> bytes:
    """The pickle of an object, not larger than `LARGEST`. Raises RequestError if there can be none."""
    content = _dumped(_module(value, name), name)
    if len(content) > LARGEST:
        raise RequestError(
            f"this object has {len(content) / 1e9:.1f} GB, and at most {LARGEST / 1e9:.1f} GB are sent to the stages",
            key=name,
            hint="give its class or a function that makes it, and its weights as a file: torch.save(it.state_dict(), "
            "'first.pt'), and 'weights': 'first.pt' in the section `model`",
        )
    return content


def _module(value: Any, name: str) -> Any:
    """A module as it is sent: itself, without what torch has put around it, on the CPU. Other objects stay.

    Raises RequestError for a module of other numbers than float32.
    """
    if isinstance(value, type) or not callable(getattr(value, "state_dict", None)):
        return value
    import torch
    from torch import nn

    from alray.models.imported.given import require_copies

    value = getattr(value, "_orig_mod", value)  # of torch.compile
    if isinstance(value, nn.DataParallel | nn.parallel.DistributedDataParallel):
        value = value.module
    require_copies(value, name)
    tensors = [*value.parameters(), *value.buffers()]
    other = next((each.dtype for each in tensors if each.is_floating_point() and each.dtype != torch.float32), None)
    if other is not None:
        raise RequestError(
            f"this module has weights of {other}",
            key=name,
            hint="give module.float(): `run.precision` says what the run computes in",
        )
    on_cpu = all(each.device.type == "cpu" for each in tensors)
    return value if on_cpu else copy.deepcopy(value).to(torch.device("cpu"))


def _dumped(value: Any, name: str) -> bytes:
    """The pickle of an object, with the classes of notebooks, scripts and the user's modules by value.

    Raises RequestError if it cannot be pickled.
    """
    import_ray()
    from ray import cloudpickle

    class Pickler(cloudpickle.CloudPickler):
        """Takes modules that are no plain ones by name, as `torch.classes`: a `self.classes` beside `torch` in a method
        is reason enough for cloudpickle to send it."""

        def reducer_override(self, given: Any) -> Any:
            if isinstance(given, ModuleType) and type(given) is not ModuleType:
                return importlib.import_module, (given.__name__,)
            return super().reducer_override(given)

    with _by_value(cloudpickle), io.BytesIO() as found:
        try:
            Pickler(found).dump(value)
            content = found.getvalue()
        except (pickle.PickleError, TypeError, AttributeError, RuntimeError) as error:
            raise RequestError(
                f"this object cannot be sent to the stages: {type(error).__name__}: {error}",
                key=name,
                hint="keep open files, locks, connections and TorchScript out of it, or give a class or function "
                "that makes it",
            ) from error
    return content


@contextmanager
def _by_value(cloudpickle: Any) -> Iterator[None]:
    """Inside, classes and functions of the user's modules are pickled by value, also those of objects within objects: a
    stage need not find those modules."""
    loaded = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    modules = [module for module in loaded if sys.modules.get(module.__name__) is module and is_users(module)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
