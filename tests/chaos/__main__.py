"""`make chaos`: random faults on small runs; each must end in the undisturbed bits or in one error, and leave nothing.

Prints a line of JSON for each case into a file, and at the end a table in Markdown. A case is named by its number:
`python -m tests.chaos --seed 0 --only 17` plays it again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count
from pathlib import Path

from .faults import Case, drawn
from .play import ERROR, RESUMED, SAME, WRONG, Played, Undisturbed, play
from .room import NoRoom

_LEFT = ("processes", "/dev/shm", "folders of Ray", "/tmp")


def table(played: Iterable[Played]) -> str:
    """The kinds of faults and what came of them, as a table in Markdown. A case of two faults counts in both rows."""
    rows: dict[str, Counter[str]] = {}
    for each in played:
        for name in [fault.row for fault in each.struck] or ["none"]:
            row = rows.setdefault(name, Counter())
            row["faults"] += 1
            row["wrong" if each.outcome in WRONG else each.outcome] += 1
            row.update({f"left: {kind}": 1 for kind in each.left})
    columns = ["faults", SAME, RESUMED, ERROR, "wrong", *(f"left: {kind}" for kind in _LEFT)]
    total = sum((row for name, row in rows.items() if name != "none"), Counter[str]())
    lines = [f"| fault | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]
    for name, row in [*sorted(rows.items()), ("all faults", total)]:
        lines.append(f"| {name} | {' | '.join(str(row[column]) for column in columns)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=300, help="how many faults are to happen")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="play the cases of these numbers only")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds after which a command is judged to hang")
    parser.add_argument("--jobs", type=int, default=2, help="cases at once")
    parser.add_argument("--folder", type=Path, help="new folder for what is to be looked at; default: a temporary one")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(exist_ok=True)
    cases = (drawn(given.seed, number) for number in given.only or count())
    try:
        played = _play_all(
            cases, sys.maxsize if given.only else given.faults, given.jobs, given.limit, folder.resolve()
        )
    except NoRoom as error:
        sys.exit(f"namespaces are needed, as root or where users may make them: {error}")
    (folder / "table.md").write_text(table(played) + "\n", encoding="utf-8")
    _say(f"{table(played)}\n\nlines of JSON and what was wrong: {folder}")
    return int(any(each.outcome in WRONG or each.left for each in played))


def _play_all(cases: Iterable[Case], faults: int, jobs: int, limit_s: float, folder: Path) -> list[Played]:
    """Play cases until so many faults have happened."""
    began_s, played, struck = time.monotonic(), list[Played](), 0
    undisturbed, cases = Undisturbed(folder, limit_s), iter(cases)
    with ThreadPoolExecutor(jobs) as threads, (folder / "cases.jsonl").open("a", encoding="utf-8") as lines:
        under_way: set[Future[Played]] = set()
        while True:
            while struck < faults and len(under_way) < jobs and (case := next(cases, None)) is not None:
                under_way.add(threads.submit(play, case, undisturbed, folder / f"case-{case.number}", limit_s))
            if not under_way:
                return played
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for each in (future.result() for future in done):
                played.append(each)
                struck += len(each.struck)
                lines.write(json.dumps(each.as_json()) + "\n")
                lines.flush()
                _say(_line(each, struck, time.monotonic() - began_s))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _line(played: Played, struck: int, seconds: float) -> str:
    what = "; ".join(each for command in played.commands for each in command.struck) or "nothing happened"
    left = f"; left: {played.left}" if played.left else ""
    spent_s = sum(command.seconds for command in played.commands)
    wrong = f": {played.commands[-1].error[-300:]}" if played.outcome in WRONG else ""
    return (
        f"[{seconds:5.0f} s, {struck} faults] {played.case.number} {played.case.scenario.name}: {what} -> "
        f"{played.outcome} in {len(played.commands)} commands, {spent_s:.0f} s{wrong}{left}"
    )


if __name__ == "__main__":
    sys.exit(main())
