"""The hash of a network's weights, against safetensors files written by hand."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from alray.runtime.stage.weights_hash import weights_sha256

Tensors = dict[str, tuple[str, list[int], bytes]]  # name -> type, shape, little-endian bytes

FIRST: Tensors = {
    "f.0.weight": ("F32", [2], struct.pack("<2f", 1.5, -2.0)),
    "f.1.num_batches_tracked": ("I64", [], struct.pack("<q", 7)),
    "b.weight": ("F32", [1], struct.pack("<f", 0.25)),
}
SECOND: Tensors = {"f.weight": ("F64", [1], struct.pack("<d", 3.0))}


def write(folder: Path, index: int, tensors: Tensors) -> None:
    """The tensors' bytes are laid down by name backwards: their place in the file must not matter."""
    header: dict[str, object] = {"__metadata__": {"order": "\n".join(tensors)}}
    body = b""
    for name in sorted(tensors, reverse=True):
        kind, shape, content = tensors[name]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    (folder / f"component-{index:02d}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)


def hash_of(folder: Path, *components: Tensors) -> str:
    for index, tensors in enumerate(components):
        write(folder, index, tensors)
    return weights_sha256(folder, len(components))


def test_it_is_names_and_bytes_component_by_component(tmp_path):
    digest = hashlib.sha256()
    for tensors in (FIRST, SECOND):
        for name, (_, _, content) in tensors.items():
            digest.update(name.encode() + content)
    assert hash_of(tmp_path, FIRST, SECOND) == digest.hexdigest()


def test_it_never_changes(tmp_path):
    """Recorded hashes stay comparable over versions of alray."""
    known = "b0214f9dcc2bb57f6ff2bcb0c4c1653500ae82a26403521ebedaed0c78659edd"
    assert hash_of(tmp_path, FIRST, SECOND) == known


@pytest.mark.parametrize("name", FIRST)
def test_every_byte_of_every_tensor_counts(tmp_path, name):
    known = hash_of(tmp_path, FIRST, SECOND)
    kind, shape, content = FIRST[name]
    for place in range(len(content)):
        flipped = bytes([*content[:place], content[place] ^ 1, *content[place + 1 :]])
        assert hash_of(tmp_path, {**FIRST, name: (kind, shape, flipped)}, SECOND) != known


def test_names_their_order_and_the_order_of_components_count(tmp_path):
    known = hash_of(tmp_path, FIRST, SECOND)
    assert hash_of(tmp_path, dict(reversed(FIRST.items())), SECOND) != known
    assert hash_of(tmp_path, SECOND, FIRST) != known
    assert (
        hash_of(
            tmp_path, {("g.weight" if name == "b.weight" else name): value for name, value in FIRST.items()}, SECOND
        )
        != known
    )
