"""The ways of a spec: every schedule of its method on every number of stages, here or within the memory of devices
elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alray.config.loading.load import SpecSource, file_of, load_composed, load_spec, read_spec
from alray.config.loading.overrides import apply_overrides, override_text
from alray.core.counting import counted
from alray.core.errors import AlrayError, PlanError, RequestError
from alray.core.quantities import BYTES, value_of
from alray.planning.prediction.basis import basis_of
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.fit import Fit, Refused, fit_of, with_best_cuts
from alray.planning.prediction.machines import require_few
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.listed import is_listed
from alray.planning.schedules.micro_batches import MOST_PER_STAGE
from alray.planning.schedules.table import SCHEDULES, schedules_on
from alray.runtime.options import Options
from alray.runtime.planner.normalisation import require_samples_to_normalise, require_whole_norms
from alray.runtime.planner.opening import Teller, open_planner
from alray.runtime.planner.stage_devices import overrides_for_devices
from alray.runtime.probe.other_programs import measured_beside

if TYPE_CHECKING:
    from alray.config.loading.composition import Composed
    from alray.config.sections.spec import Spec


FREE: Mapping[str, Any] = {
    "pipeline.schedule": "auto",
    "pipeline.stages": 1,
    "pipeline.partition": "auto",
    "pipeline.micro_batches": None,
    "pipeline.virtual_stages": None,
}
"""What is searched, and its value while the data is opened and costs are counted."""
MOST_STAGES = 8
"""The largest number of stages that is searched on this machine."""


@dataclass(frozen=True)
class Fitting:
    """Every schedule on every number of stages that was searched, and whether it fits.

    Attributes:
        rows: the best number of micro-batches for each schedule on each number of stages, what fits first, by step
            time.
        refused: what cannot run.
        given: the overrides that were searched with, for a run: without machines and files of costs, and with an
            accelerator for each stage where the machines have one.
        fixed: the keys of which they give a value that was not searched.
        set_aside: the keys of the spec whose values the search replaced.
        assumed: as of a plan.
        devices: bytes of each, where their memory alone is known; (): others.
        machines: that were searched, in words; None: this one, or such devices.
        basis: as of a plan.
        recomputes: whether the spec has `pipeline.activation_checkpointing`.
    """

    name: str
    method: str
    replicas: int
    devices: tuple[int, ...]
    costs: Costs
    rows: tuple[Fit, ...]
    refused: tuple[Refused, ...]
    given: tuple[str, ...]
    fixed: frozenset[str]
    set_aside: frozenset[str]
    assumed: str | None = None
    machines: str | None = None
    basis: dict[str, str] = field(default_factory=dict, hash=False)
    recomputes: bool = False

    @property
    def best(self) -> Fit | None:
        """The fastest one that fits and trains the weights of the method, whose gradients are not late; None if nothing
        does."""
        return next((row for row in self.rows if row.fits and not row.gradient_delay), None)

    def overrides(self, row: Fit) -> list[str]:
        """All overrides with which `alray run` of the spec takes this row: those given, and what was searched."""
        layout = {
            "pipeline.schedule": row.schedule,
            "pipeline.stages": str(row.stages),
            "pipeline.partition": str(list(row.partition)).replace(" ", ""),
        }
        for key, parts in (
            ("pipeline.micro_batches", row.micro_batches),
            ("pipeline.virtual_stages", row.virtual_stages),
        ):
            if parts > 1:
                layout[key] = str(parts)
            elif key in self.set_aside:
                layout[key] = "null"
        return [*self.given, *(f"{key}={value}" for key, value in layout.items() if key not in self.fixed)]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "method": self.method,
            "replicas": self.replicas,
            "devices": list(self.devices),
            "costs": self.costs.source,
            "machines": self.machines,
            "basis": self.basis,
            "assumed": self.assumed,
            "fits": self.best is not None,
            "rows": [{**row.as_json(), "overrides": self.overrides(row)} for row in self.rows],
            "refused": list(map(str, self.refused)),
        }


def parse_devices(text: str) -> tuple[int, ...]:
    """The memory of each device in bytes, from a text such as `4x24GB`. Raises RequestError."""
    read = re.fullmatch(r"([1-9]\d{0,4})x(\d{1,9}(?:\.\d{1,9})? ?[MGT]i?B)", text.strip())
    if read is None:
        raise RequestError(
            f"`{text}` is not a number of devices and their memory", key="--devices", hint="write, for example, 4x24GB"
        )
    try:
        require_few(int(read[1]))
        return (int(value_of(read[2], BYTES) or 0),) * int(read[1])
    except PlanError as error:
        problem = error.problems[0]
        raise RequestError(problem.message, hint=problem.hint, key="--devices") from error


def fit_spec(
    source: SpecSource,
    overrides: list[str],
    devices: str | None,
    *,
    probe: bool,
    options: Options,
    teller: Teller,
) -> Fitting:
    """Search what fits, here, on the machines of the spec, or on devices of which the memory alone is known.

    Args:
        devices: number and memory of such devices, as `parse_devices` reads them; None: there are none.
        overrides: what they say of the schedule, the stages or the micro-batches is not searched.
        probe: measure the components on this machine instead of estimating their costs.
    """
    composed = read_spec(source)
    # What is given as `auto` is searched, as it is where it is left out.
    given = {key: value for key, value in values_given(composed, overrides).items() if value != "auto"}
    if "pipeline.partition" in given:
        raise RequestError(
            "the best cut is searched", key="pipeline.partition", hint="leave it out; `alray plan` shows a given cut"
        )
    free = FREE.keys() - given.keys()
    sizes = () if devices is None else parse_devices(devices)
    if "pipeline.stages" in free:
        require_stages_alike(composed, overrides)
    # What is given of micro-batches and virtual stages may be wrong on the one stage on which the spec is opened.
    opened, opened_as = composed.copy(), free | {"pipeline.micro_batches", "pipeline.virtual_stages"}
    if is_listed(given.get("pipeline.schedule")) and "pipeline.stages" in free:  # the file says on how many
        opened_as -= {"pipeline.stages"}
        if isinstance(pipeline := opened.value.get("pipeline"), dict):
            pipeline.pop("stages", None)
    loaded = load_composed(opened, file_of(source), in_place(overrides, FREE, opened_as))
    spec, written = loaded.spec, frozenset(composed.value.get("pipeline") or {})
    machines = None if spec.machines is None else spec.machines.described()
    if sizes and machines is not None:
        raise RequestError(
            "--on, or the spec, names machines too", key="--devices", hint="leave it out, or --on and `machines`"
        )
    apply_overrides(composed.value, overrides, composed.locations)  # errors show what the user wrote, not `FREE`
    with composed.locations.locating():
        number = len(sizes) if machines is None else len(machines.devices)
        room = number // spec.replicas.count if number else MOST_STAGES
        most = room if "pipeline.stages" in free else 0
        planner = open_planner(loaded, options, teller, without_data=True, most_stages=max(spec.pipeline.stages, most))
        teller.doing("measuring the components" if probe else "counting the components")
        costs = planner.costs(probe=probe, any_layout=True)
        for line in measured_beside(costs.taken_processors):
            teller.note(line)

        def setting(schedule: str, stages: int, micro_batches: int | None) -> StepSetting:
            layout = {
                **FREE,
                "pipeline.schedule": schedule,
                "pipeline.stages": stages,
                "pipeline.micro_batches": micro_batches,
            }
            own = load_spec(source, in_place(overrides, layout, free)).spec
            require_whole_norms(own, planner.workload.network)
            require_samples_to_normalise(own, planner.workload)
            placed = planner.setting(own, costs, stages, own.replicas.count)
            if not sizes:
                return placed
            asked = [own.resources.memory_bytes or bundle.get("memory") for bundle in own.resources.bundles(stages)]
            # Of a device of which the memory alone is known no more than the spec gives.
            limits = tuple(sizes[0] if each is None else min(sizes[0], int(each)) for each in asked)
            return replace(placed, cores=None, memory_limits=limits)

        every = _stages(planner.spec, len(costs.components), number, free)
        rows, refused = _search(setting, planner.spec, every, costs.batch_size, free, teller)
        placed = rows[0].setting.costs if rows else costs
    devices_asked = overrides_for_devices(spec)
    elsewhere = {"machines", *(each.partition("=")[0] for each in devices_asked)}
    if isinstance(spec.pipeline.costs, Path):
        elsewhere.add("pipeline.costs")
    return Fitting(
        name=spec.name,
        method=spec.method.kind,
        replicas=spec.replicas.count,
        devices=sizes,
        costs=costs,
        rows=rows,
        refused=refused,
        given=(*in_place(overrides, {}, free | elsewhere), *devices_asked),
        fixed=frozenset(FREE) - free,
        set_aside=frozenset(key for key in free if key.removeprefix("pipeline.") in written),
        assumed=planner.workload.data.assumed,
        machines=None if machines is None else str(machines),
        basis=basis_of(placed, machines, replicas=spec.replicas.count if rows else 1),
        recomputes=spec.pipeline.activation_checkpointing,
    )


def values_given(composed: Composed, overrides: Sequence[str]) -> dict[str, Any]:
    """The values of keys of sections that overrides give, by themselves (`pipeline.stages=2`) or with their section
    (`pipeline={stages: 2}`)."""
    document: dict[str, Any] = {}
    apply_overrides(document, overrides, composed.copy().locations)
    return {
        f"{name}.{key}": value
        for name, section in document.items()
        if isinstance(section, dict)
        for key, value in section.items()
    }


def require_stages_alike(composed: Composed, overrides: Sequence[str]) -> None:
    """Raise RequestError for a list of what each stage requests: a search tries several numbers of stages."""
    written = composed.copy()
    apply_overrides(written.value, overrides, written.locations)
    resources = written.value.get("resources")
    if isinstance(resources, dict) and isinstance(resources.get("per_stage"), list | tuple):
        raise RequestError(
            "this is a list for one number of stages, and several are searched",
            key="resources.per_stage",
            hint="add one value for all of them, such as 'resources.per_stage={CPU: 1}'",
        )


def in_place(overrides: Sequence[str], values: Mapping[str, Any], keys: Collection[str]) -> list[str]:
    """Overrides with these values of these keys in place of what they say of a key, or of one below it, by itself."""
    sections = tuple(f"{key}." for key in keys)
    return [
        *(each for each in overrides if not f"{each.partition('=')[0].strip()}.".startswith(sections)),
        *(override_text(key, value) for key, value in values.items() if key in keys),
    ]


def _stages(spec: Spec, components: int, devices: int, free: Collection[str]) -> Sequence[int]:
    """The numbers of stages to search.

    Args:
        devices: how many there are; 0: this machine.
    """
    given = "pipeline.stages" not in free
    replicas = spec.replicas.count
    room = devices // replicas if devices else MOST_STAGES
    layout = None if "pipeline.schedule" in free else SCHEDULES[spec.schedule].only_layout
    asked = spec.pipeline.stages if given else None if layout is None else layout.stages
    least = asked or 1
    if least > room and (devices or not given):
        listed = "" if layout is None else f"`{SCHEDULES[spec.schedule].name}` is for {counted(least, 'stage')}: "
        raise RequestError(
            f"{listed}{counted(least * replicas, 'stage')} need as many devices, and there are {devices or room}",
            key="--devices" if spec.machines is None else "--on",
            hint="name more devices, or lower pipeline.stages or replicas.count",
        )
    return range(1, min(room, components) + 1) if asked is None else [asked]


def _search(
    setting: Callable[[str, int, int | None], StepSetting],
    spec: Spec,
    every: Sequence[int],
    batch_size: int,
    free: Collection[str],
    teller: Teller,
) -> tuple[tuple[Fit, ...], tuple[Refused, ...]]:
    """A row for each schedule on each number of stages, in order; and why others cannot run.

    The best cut is searched for those that could be the fastest one that fits.

    Args:
        setting: of a schedule on so many stages, in so many micro-batches; None: as the spec decides.
        every: the numbers of stages.
    """
    found: list[Fit] = []
    refused: list[Refused] = []
    faults: list[AlrayError] = []
    for stages in every:
        teller.doing(f"fitting {counted(stages, 'stage')} of up to {max(every)}")
        names = [spec.schedule]
        if "pipeline.schedule" in free:
            names = [each.name for each in schedules_on(stages, local_losses=spec.method.local_losses)]
        for name in names:
            schedule = SCHEDULES[name]
            first = len(found)
            numbers: list[int | None] = []
            if schedule.cuts_mini_batches and "pipeline.micro_batches" in free:
                numbers += [number for number in schedule.possible_micro_batches(stages, batch_size) if number > 1]
            for number in numbers or [None]:
                before = found[first:]
                # More for each stage are tried only while nothing fits.
                if number is not None and number > MOST_PER_STAGE * stages and any(fit.fits for fit in before):
                    break
                try:
                    found.append(fit_of(setting(name, stages, number), search=False))
                except AlrayError as error:  # with more micro-batches they have fewer samples still
                    if not before:
                        faults.append(error)
                    parts = f"{number} or more micro-batches" if before else ""
                    refused.append(Refused(schedule.name, stages, error.problems[0].sentence, parts))
                    break
    given = FREE.keys() - free
    first_faults = [each.problems[0] for each in faults]
    alike = len({each.message for each in first_faults}) == 1
    if not found and faults and (alike or {each.key for each in first_faults} <= given):
        raise faults[0]  # what is given is wrong on any layout
    rows: dict[tuple[str, int], Fit] = {}
    searched = "searching the best cut of what could be the fastest, {} of at most {}"
    best = with_best_cuts(found, lambda number, most: teller.doing(searched.format(number, most)))
    for fit in sorted(best, key=lambda each: each.rank):
        rows.setdefault((fit.schedule, fit.stages), fit)
    return tuple(rows.values()), tuple(refused)
