"""One picture file as a tensor."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

from alray.core.errors import DataError
from alray.data.picture import Picture, PictureSet, read_image, told_of


def write(path: Path, pixels: numpy.ndarray, **options: object) -> Path:
    Image.fromarray(pixels).save(path, **options)
    return path


def test_pixels_come_out_as_they_were_written(tmp_path: Path) -> None:
    pixels = numpy.arange(4 * 5 * 3, dtype=numpy.uint8).reshape(4, 5, 3)
    got = read_image(write(tmp_path / "a.png", pixels), (3, 4, 5))
    assert got.dtype == torch.uint8
    assert got.stride() == (20, 5, 1)
    assert torch.equal(got, torch.from_numpy(pixels).permute(2, 0, 1))


def test_channels_and_size_are_converted(tmp_path: Path) -> None:
    colour = write(tmp_path / "colour.png", numpy.full((9, 7, 3), (255, 0, 0), dtype=numpy.uint8))
    gray = write(tmp_path / "gray.bmp", numpy.full((9, 7), 100, dtype=numpy.uint8))
    assert (read_image(colour, (1, 4, 4)) == 76).all()  # ITU-R 601: 0.299 red
    assert read_image(colour, (3, 4, 4))[:, 0, 0].tolist() == [255, 0, 0]
    assert (read_image(gray, (3, 12, 12)) == 100).all()


def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path: Path) -> None:
    path = write(tmp_path / "deep.png", numpy.array([[0, 256, 32768, 65535]], dtype=numpy.uint16))
    assert read_image(path, (1, 1, 4)).flatten().tolist() == [0, 1, 128, 255]


def test_a_picture_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3  # orientation: upside down
    path = write(tmp_path / "turned.png", numpy.array([[10, 20, 30]], dtype=numpy.uint8), exif=exif)
    assert read_image(path, (1, 1, 3)).flatten().tolist() == [30, 20, 10]


def test_a_missing_picture(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_image(tmp_path / "no.png", (1, 2, 2))
    assert caught.value.problems[0].file == str(tmp_path / "no.png")


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "bmp", "webp"])
def test_a_picture_cut_short(tmp_path: Path, ending: str) -> None:
    noise = numpy.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=numpy.uint8)
    path = write(tmp_path / f"cut.{ending}", noise)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError) as caught:
        read_image(path, (3, 8, 8))
    problem = caught.value.problems[0]
    assert problem.file == str(path)
    assert problem.message.startswith(("damaged picture (", "this is not a picture"))


def test_a_small_file_of_a_large_picture_is_not_decoded(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.png"
    Image.new("1", (11_000, 11_000)).save(bomb)
    assert bomb.stat().st_size < 100_000
    with pytest.raises(DataError, match="has 11,000 x 11,000 pixels, and at most 50,000,000 are decoded; make it smal"):
        read_image(bomb, (3, 8, 8))
    program = tmp_path / "program.png"  # of PostScript, which Pillow would have Ghostscript run
    program.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) print\n%%EOF\n")
    with pytest.raises(DataError, match="EPS is a program that draws a picture, and is not run; convert it to PNG"):
        read_image(program, (3, 8, 8))


def deep(path: Path, pixels: numpy.ndarray, colour: int) -> Path:
    """A PNG file with 16 bits a channel, which Pillow does not write. `colour`: 2 RGB, 4 grey and alpha, 6 RGBA."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    return path


def told(*paths: Path) -> tuple[str, ...]:
    return told_of(PictureSet(paths, tuple(0 for _ in paths), (1, 3)))


@pytest.mark.parametrize(("kind", "values"), [("float32", [0, 0.5, 1]), ("int32", [0, 32768, 65535])])
def test_deep_pictures_are_scaled_to_8_bits(tmp_path: Path, kind: str, values: Any) -> None:
    path = write(tmp_path / "a.tif", numpy.array([values], dtype=kind))
    assert read_image(path, (1, 1, 3)).flatten().tolist() == [0, 128, 255]
    assert "more than 8 bits" in told(path)[0]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("uint16", [0, 100, 255]),
        ("uint16", [0, 2000, 4095]),
        ("float32", [0, 100, 255]),
        ("float32", [-1, 0, 1]),
        ("int32", [0, 1, 70_000]),
        ("float32", [0, 0.5, float("nan")]),
    ],
)
def test_deep_pictures_of_another_range_are_refused(tmp_path: Path, kind: str, values: Any) -> None:
    with pytest.raises(DataError, match=r"range|finite"):
        told(write(tmp_path / "a.tif", numpy.array([values], dtype=kind)))


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_colours_of_16_bits(tmp_path: Path, colour: int, channels: int) -> None:
    pixels = numpy.zeros((1, 3, channels), dtype=numpy.uint16)
    pixels[0, :, 0] = [0, 32768, 65535]
    if colour != 2:
        pixels[..., -1] = 65535
    path = deep(tmp_path / "a.png", pixels, colour)
    assert read_image(path, (3, 1, 3))[0].flatten().tolist() == [0, 128, 255]
    assert "more than 8 bits" in told(path)[0]


@pytest.mark.parametrize(
    ("kind", "ending"), [("uint16", "png"), ("uint16", "tif"), ("int32", "tif"), ("float32", "tif")]
)
def test_a_deep_picture_is_turned_upright(tmp_path: Path, kind: str, ending: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    white = 1 if kind == "float32" else 65535
    path = write(tmp_path / f"a.{ending}", numpy.array([[0, white, white]], dtype=kind), exif=exif)
    assert read_image(path, (1, 3, 1)).flatten().tolist() == [0, 255, 255]
    exif[0x0112] = 3
    write(path, numpy.array([[0, white, white]], dtype=kind), exif=exif)
    assert read_image(path, (1, 1, 3)).flatten().tolist() == [255, 255, 0]


@pytest.mark.parametrize(("ending", "several"), [("tif", True), ("gif", True), ("png", True), ("tif", False)])
def test_that_the_first_of_several_pages_is_read_is_told(tmp_path: Path, ending: str, several: bool) -> None:
    pages = [Image.fromarray(numpy.full((4, 4), value, numpy.uint8)) for value in (10, 200, 90)]
    path = tmp_path / f"a.{ending}"
    pages[0].save(path, save_all=True, append_images=pages[1:] if several else [])
    assert read_image(path, (1, 4, 4)).unique().tolist() == [10]
    assert [("3 pages" in line, "the first" in line) for line in told(path)] == [(True, True)] * several


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_a_transparent_picture_is_laid_on_white(tmp_path: Path, mode: str) -> None:
    """All its content is in its alpha channel."""
    path = tmp_path / "a.png"
    if mode == "P":
        palette = Image.fromarray(numpy.array([[0, 1, 2]], dtype=numpy.uint8))
        palette.putpalette([0] * 9)
        palette.save(path, transparency=bytes([0, 128, 255]))
    else:
        pixels = numpy.zeros((1, 3, len(mode)), dtype=numpy.uint8)
        pixels[0, :, -1] = [0, 128, 255]
        write(path, pixels)
    assert read_image(path, (1, 1, 3)).flatten().tolist() == [255, 127, 0]
    assert "transparent" in told(path)[0]
    write(path, numpy.array([[[255, 255, 255, 0], [255, 255, 255, 255]]], dtype=numpy.uint8))
    with pytest.raises(DataError, match="nothing is to be seen of this picture on white"):
        told(path)


def test_what_is_no_picture_is_not_to_be_removed_by_who_predicts(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("a few words")
    with pytest.raises(DataError) as caught:
        Picture((1, 8, 8), (8, 8)).read(words)
    assert "remove" not in str(caught.value) and "picture" in str(caught.value.problems[0].hint)
