"""A cache of the costs and shapes of components in a folder: runs of equal components measure and inspect them once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from alray import __version__
from alray.config.known_code import hashes_of
from alray.config.loading.inputs import packages_of
from alray.config.loading.own_files import own_files
from alray.config.sections.grammar import marked
from alray.config.sections.own_code import OwnClass
from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.core.run_folder.records import write_json
from alray.core.storage.json_file import read_json
from alray.models.encoder import EncoderFacts
from alray.models.shape import Shape
from alray.planning.prediction.costs import Costs
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.device.devices import environment
from alray.runtime.probe.measure import Surroundings

MEASURED_AGAIN = "delete this file: it is measured again"


def cached_costs(
    folder: Path | None, spec: Spec, code: UserCode, surroundings: Surroundings, measure: Callable[[], Costs]
) -> Costs:
    """The costs of a spec's components: those that `folder` keeps, if there is one, else measured now and kept."""
    if folder is None:
        return measure()
    file = folder / f"{_key(spec, code, surroundings)}.json"
    if file.is_file():
        return read_json(file, Costs, MEASURED_AGAIN)
    costs = measure()
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, costs.as_json())
    return costs


def cached_encoders(folder: Path, spec: Spec, code: UserCode, sample: Shape) -> tuple[EncoderFacts, ...]:
    """The facts about a spec's encoders on such samples that `folder` holds; () if none.

    To find it out, torch loads its compiler, which takes a second.
    """
    file = _encoders_file(folder, spec, code, sample)
    if not file.is_file():
        return ()
    first, *others = read_json(file, list[dict[str, Any]], MEASURED_AGAIN)
    return (EncoderFacts.from_json(first, sample), *(EncoderFacts.from_json(each, None) for each in others))


def cache_encoders(folder: Path, spec: Spec, code: UserCode, encoders: Sequence[EncoderFacts]) -> None:
    """Keep in `folder` what was found of a spec's encoders, unless it is there."""
    file = _encoders_file(folder, spec, code, encoders[0].input)
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(file, [facts.as_json() for facts in encoders])


def _encoders_file(folder: Path, spec: Spec, code: UserCode, sample: Shape) -> Path:
    # A method decides which encoders take samples, and where a model is cut, as stages and compilation do.
    model = spec.model.model_dump(mode="json")
    described: list[Any] = [model, spec.method.kind, spec.pipeline.stages, spec.run.compile]
    parts = [None if part is None else part.as_json() for part in (sample.several, sample.labels)]  # of the user's data
    described += [sample.as_json(), sample.tokens, sample.numbers, *parts, spec.run.precision]
    # Another version may find out other facts, or others of the same.
    described += [__version__, torch.__version__]
    return folder / f"encoders-{_short_hash(spec, code, described)}.json"


def _key(spec: Spec, code: UserCode, surroundings: Surroundings) -> str:
    """A text that is equal for runs whose components cost the same on this machine.

    The optimizer's numbers, such as its rate, count only as zero or not.
    """
    sections = {"data", "task", "model", "method", "optimizer", "resources", "replicas"}
    described: dict[str, Any] = spec.model_dump(mode="json", include=sections)
    described["optimizer"] = {
        key: bool(value) if isinstance(value, float) else value for key, value in described["optimizer"].items()
    }
    around = {**asdict(surroundings), "device": surroundings.device.type}
    around |= spec.run.model_dump(include={"precision", "compile", "deterministic"})
    if spec.optimizer.ema_decay is not None:  # then late gradients have copies of buffers
        around["late"] = SCHEDULES[spec.schedule].gradient_delay > 0
    if spec.pipeline.messages is not None:
        around["messages"] = spec.pipeline.messages.model_dump(mode="json")
    return _short_hash(spec, code, [described, around, environment(surroundings.device)])


def _short_hash(spec: Spec, code: UserCode, described: Any) -> str:
    """A hash of what is described, of the packages that a spec needs, and of each file of the user's code."""
    references = [reference for _, reference, _ in marked(spec, OwnClass)]
    own = hashes_of(code.root, own_files(references, code.root))
    whole = json.dumps([described, packages_of(spec), own], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
