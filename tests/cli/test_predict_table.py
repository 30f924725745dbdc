"""predict, of a network for tables: each row is a sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SPEC = """
name: sizes
data: {source: table, train: train.csv, label_column: size, batch_size: 8, validation_fraction: 0.25}
task: {kind: regression}
model: {components: [{block: linear, width: 8}, {block: linear, width: 8}]}
method: {kind: backpropagation}
optimizer: {kind: adam, lr: 3.0e-2}
pipeline: {stages: 1, schedule: single}
run: {epochs: 40}
"""


@pytest.fixture
def trained(alray: Callable[..., Any], tmp_path: Path) -> Path:
    rows = [(n % 16, n % 5, 100 * (n % 16) - 20 * (n % 5)) for n in range(128)]
    write(tmp_path / "train.csv", [("a", "b", "size"), *rows])
    (tmp_path / "sizes.yaml").write_text(SPEC)
    assert alray("run", tmp_path / "sizes.yaml", "--inline", "--output", tmp_path / "run").code == 0
    return tmp_path / "run"


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


@pytest.mark.full
def test_rows_with_and_without_targets(alray: Callable[..., Any], trained: Path, tmp_path: Path) -> None:
    bare = write(tmp_path / "bare.csv", [("b", "a"), (0, 15), (4, 2)])
    found = alray("predict", trained, bare, "--json").json["predictions"]
    assert [each["input"] for each in found] == [f"{bare}:2", f"{bare}:3"]
    assert [each["values"]["size"] for each in found] == pytest.approx([1500, 120], abs=60)
    full = write(tmp_path / "full.csv", [("a", "b", "size"), (15, 0, 0), (2, 4, 0)])
    again = alray("predict", trained, full, "--json").json["predictions"]
    assert [each["values"] for each in again] == [each["values"] for each in found]


@pytest.mark.full
def test_what_is_no_table_is_one_error(alray: Callable[..., Any], trained: Path, tmp_path: Path) -> None:
    for content in (b"\x89PNG\r\n\x1a\n\x00", b"", b"a,b\n", b"a\n1\n"):
        (tmp_path / "x.png").write_bytes(content)
        said = alray("predict", trained, tmp_path / "x.png", "--json")
        assert said.code != 0 and len(said.json["errors"]) == 1, content
