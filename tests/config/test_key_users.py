"""No key, kind or schedule is without a user: each stands in a committed spec, study or example."""

from __future__ import annotations

from alray.planning.schedules.table import SCHEDULES
from benchmarks.key_users import Key, all_keys, default_kinds, open_kinds, schedules, users

WITHOUT: dict[Key, str] = {
    Key("DataSection", "brings_validation"): "alray writes it where a Python program gives a validation set",
    Key("Spec", "version"): "alray writes it into the spec of a run folder",
}
"""Keys that no committed file has, with the reason."""


def test_every_key_and_kind_has_a_user() -> None:
    without = all_keys() - users().keys() - default_kinds() - open_kinds()
    assert sorted(without) == sorted(WITHOUT), "use it in a spec of specs/ or examples/, or delete it"


def test_every_schedule_has_a_user() -> None:
    assert SCHEDULES.keys() - schedules() == set()
