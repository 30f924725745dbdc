"""`alray methods`."""

from __future__ import annotations

from dataclasses import asdict

from alray.cli.options import Json
from alray.cli.terminal import terminal


def methods(*, json: Json = False) -> None:
    """List the methods: what trains a component, what travels, where routes of inference end, and the source.

    A spec names one of them as `method`. The names that installed packages provide to specs come last.
    """
    with terminal(as_json=json) as streams:
        from alray.config.sections.method import METHODS
        from alray.config.sections.section import listed
        from alray.config.sections.spec import KINDS
        from alray.core.packages import provided
        from alray.planning.schedules.table import GROUP

        known = METHODS.sections
        groups = [*(kind.group for kind in KINDS), GROUP]
        of_packages = [each for group in groups for found in provided(group).values() for each in found]
        if json:
            streams.answer(
                {
                    "methods": [
                        {
                            "kind": kind,
                            "abbreviation": each.abbreviation,
                            "trains": each.trains,
                            "travels": each.travels,
                            "local_losses": each.local_losses,
                            "compares_samples": each.compares_samples(),
                            "tasks": list(each.known_tasks()),
                            "every_depth": each.every_depth,
                            "source": each.source,
                        }
                        for kind, each in known.items()
                    ],
                    "of_packages": [asdict(each) for each in of_packages],
                }
            )
            return
        for number, (kind, each) in enumerate(known.items()):
            streams.put(("\n" if number else "") + f"{kind} ({each.abbreviation})")
            streams.fields(
                [
                    ("trains by", each.trains),
                    ("travels", each.travels),
                    ("learns", listed(each.known_tasks(), "and")),
                    ("compares", "the samples of a mini-batch" if each.compares_samples() else "no samples"),
                    ("routes", "every depth" if each.every_depth else "the whole network"),
                    ("source", each.source),
                ]
            )
        if of_packages:
            streams.put("\nFrom installed packages")
            streams.fields(
                [
                    (each.name, f"{each.group.removeprefix('alray.')}, {each.origin}: {each.module}:{each.attribute}")
                    for each in of_packages
                ]
            )
