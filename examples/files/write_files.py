"""Write small data sets as files in the forms that people's data often have: the specs in this folder read them.

python examples/files/write_files.py          # from the root of the repository; all lies in examples/files/data

They are sets that come with scikit-learn, and code of Python's standard library. A fifth of each is the test set, and
another one the validation set.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from pkgutil import get_data, iter_modules

import numpy
from PIL import Image
from sklearn.datasets import load_diabetes, load_digits

FOLDER = Path(__file__).parent / "data"
PACKAGES = ("asyncio", "email", "json", "logging", "unittest", "xml")


def main(folder: Path = FOLDER) -> None:
    """Write all sets into a folder."""
    for write in (diabetes, digits_as_rows, scans, texts, code):
        write(folder)
        print(f"{folder}: {write.__doc__}")


def diabetes(folder: Path) -> None:
    """A table as spreadsheets in much of Europe write it: semicolons between columns, and decimal commas."""
    found = load_diabetes()
    rows = [[*numbers, goal] for numbers, goal in zip(found.data, found.target, strict=True)]
    lines = [[f"{value:.4f}".replace(".", ",") for value in row] for row in rows]
    for split, part in divided(lines):
        write_rows(folder / "diabetes" / f"{split}.csv", [[*found.feature_names, "progress"], *part], delimiter=";")


def digits_as_rows(folder: Path) -> None:
    """A table without a header: 64 numbers of a picture, and its digit."""
    found = load_digits()
    rows = [[*map(int, values), int(digit)] for values, digit in zip(found.data, found.target, strict=True)]
    for split, part in divided(rows):
        write_rows(folder / "digit_rows" / f"{split}.csv", part)


def scans(folder: Path) -> None:
    """Pictures of 16 bits, as many scanners give them, and a table that says how much ink each one has."""
    for split, part in divided(load_digits().images):
        where = folder / "scans" / split
        where.mkdir(parents=True, exist_ok=True)
        rows = [["file_name", "ink", "scanner"]]
        for number, values in enumerate(part):
            Image.fromarray((values * 4095).astype(numpy.uint16)).save(where / f"{number:04d}.png")
            rows.append([f"{number:04d}.png", f"{values.mean() / 16:.4f}", "A4"])
        write_rows(where / "metadata.csv", rows)


def texts(folder: Path) -> None:
    """Lines of Python's own modules with the package that they are from: divided by tabs, and as JSON."""
    rows = [[name, line] for name in PACKAGES for line in lines_of(name)]
    for split, part in divided(rows):
        write_rows(folder / "texts" / f"{split}.csv", [["package", "line"], *part], delimiter="\t")
        file = folder / "texts_json" / f"{split}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps({"package": name, "line": line}) + "\n" for name, line in part))


def code(folder: Path) -> None:
    """All of these modules in one file."""
    text = "\n\n\n".join(source for package in PACKAGES for source in sources_of(package))
    (folder / "code.txt").write_text(text, encoding="utf-8")


def lines_of(package: str) -> Iterator[str]:
    """The lines of the package's own modules that have at least four words."""
    lines = (line.strip() for source in sources_of(package) for line in source.splitlines())
    return (line for line in lines if len(line.split()) >= 4)


def sources_of(package: str) -> Iterator[str]:
    """The text of each of the package's own modules."""
    for module in iter_modules(__import__(package).__path__):
        found = None if module.ispkg else get_data(package, f"{module.name}.py")
        if found is not None:
            yield found.decode()


def divided(rows: Sequence) -> Iterator[tuple[str, list]]:
    """A fixed fifth of the rows as `test`, another one as `validation`, the others as `train`."""
    order = numpy.random.default_rng(0).permutation(len(rows))
    cut = len(rows) // 5
    for split, part in (("train", order[2 * cut :]), ("validation", order[cut : 2 * cut]), ("test", order[:cut])):
        yield split, [rows[index] for index in part]


def write_rows(file: Path, rows: Sequence[Sequence], delimiter: str = ",") -> None:
    """Write a CSV file, and the folder that it lies in."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as lines:
        csv.writer(lines, delimiter=delimiter).writerows(rows)


if __name__ == "__main__":
    main()
