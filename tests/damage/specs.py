"""Damages the committed specs and opens each of them with `alray validate`, in this process.

    python -m tests.damage.specs SEED CASES FOLDER

FOLDER is empty. The last line printed is a JSON list of all that is wrong.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from random import Random

from alray.cli.main import execute
from tests.damage.mutations import mutate_yaml
from tests.damage.watching import watched

SPECS = Path(__file__).parents[2] / "specs"
PLANTED = "from pathlib import Path\nPath(__file__).with_name('PLANTED').touch()\n\n\nclass Block:\n    pass\n"


def said_by(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command line."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = execute(arguments)
    return code, out.getvalue(), err.getvalue()


def validated(file: Path) -> str | None:
    """What is wrong with the answer of `alray validate`."""
    code, _, err = said_by("validate", str(file))
    if (code, "error: " in err) in ((0, False), (2, True)):
        return None
    return f"exit code {code}: {err[:500]}"


def main(seed: int, cases: int, folder: Path) -> list[str]:
    shutil.copytree(SPECS, folder, dirs_exist_ok=True)
    files = sorted(folder.rglob("*.yaml"))
    for around in {file.parent for file in files}:
        (around / "planted.py").write_text(PLANTED)
    validated(files[0])  # loads what every case needs
    wrong = []
    for number in range(cases):
        random = Random(f"{seed} {number}")
        of = random.choice(files)
        damaged = of.with_name(f"damaged_{of.name}")
        damaged.write_bytes(mutate_yaml(random, of.read_text(encoding="utf-8")))
        found = watched(f"case {number} of seed {seed}, {of.relative_to(folder)}", partial(validated, damaged))
        if found:
            damaged.rename(folder / f"case-{number}.yaml.kept")
        else:
            damaged.unlink()
        wrong += found
    wrong += [f"code was run: {each}" for each in folder.rglob("PLANTED")]
    return wrong


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
