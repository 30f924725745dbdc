"""One picture file as a tensor."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from alray.data.picture import read_image
from alray.errors import DataError


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
