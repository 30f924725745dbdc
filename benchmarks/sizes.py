"""How large each room of alray is, beside another commit: `python -m benchmarks.sizes [BASE]`. BASE: the commit before.

It counts files, statements, tokens and functions, without docstrings and comments. Statements and tokens do not change
when lines are packed. A figure to report, no limit: code is small when it has few ideas, not when it is dense.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURES = ("files", "statements", "tokens", "functions")
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
Sizes = dict[str, Counter[str]]


def size_of(source: str) -> Counter[str]:
    """The figures of one file."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = sum(  # of modules, classes, functions and fields
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for node in nodes
    )
    tokens = sum(token.type not in _LAYOUT for token in tokenize.generate_tokens(io.StringIO(source).readline))
    return Counter(
        files=1,
        statements=sum(isinstance(node, ast.stmt) for node in nodes) - docstrings,
        tokens=tokens - docstrings,
        functions=sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes),
    )


def rooms_of(sources: Iterable[tuple[str, str]]) -> Sizes:
    """The sizes of the folders of alray, and of all together. sources: path below alray/ and text of each file."""
    rooms: Sizes = {}
    for path, source in sources:
        for room in (path.partition("/")[0] if "/" in path else ".", "all"):
            rooms.setdefault(room, Counter()).update(size_of(source))
    return rooms


def here() -> Iterator[tuple[str, str]]:
    folder = ROOT / "alray"
    for file in folder.rglob("*.py"):
        yield file.relative_to(folder).as_posix(), file.read_text(encoding="utf-8")


def at(commit: str) -> Iterator[tuple[str, str]]:
    command = ["git", "-C", str(ROOT), "archive", commit, "alray"]
    archive = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            content = files.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                yield member.name.removeprefix("alray/"), content.read().decode()


def commit_before() -> str | None:
    """None where there is none, as in a clone of the last commit alone."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--quiet", "--verify", "HEAD~1"]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return found.stdout.strip() or None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizes")
    parser.add_argument("base", nargs="?", default=commit_before(), help="the commit beside which sizes are shown")
    base, after = parser.parse_args().base, rooms_of(here())
    before = after if base is None else rooms_of(at(base))
    sys.stdout.write(f"{'':14}" + "".join(f"{figure:>20}" for figure in FIGURES) + "\n")
    for room in sorted({*before, *after}, key=lambda each: -after.get(each, Counter())["tokens"]):
        old, new = before.get(room, Counter()), after.get(room, Counter())
        cells = (f"{new[each]:,} ({new[each] - old[each]:+,})" for each in FIGURES)
        sys.stdout.write(f"{room:14}" + "".join(f"{cell:>20}" for cell in cells) + "\n")


if __name__ == "__main__":
    main()
