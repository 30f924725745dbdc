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
    assert str(caught.value) == f"{tmp_path / 'no.png'}: picture not found; give the path of a picture file"


def test_a_file_that_is_no_picture(tmp_path: Path) -> None:
    path = tmp_path / "text.png"
    path.write_text("not a picture", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_image(path, (1, 2, 2))
    assert str(caught.value) == (
        f"{path}: not a picture in any known format; remove the file or replace it with a whole picture"
    )


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
    assert problem.mend == "remove the file or replace it with a whole picture"
    assert problem.message.startswith(("damaged picture (", "not a picture in any known format"))


def test_the_whole_message_of_a_damaged_picture(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.bmp", numpy.zeros((8, 8), dtype=numpy.uint8))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError) as caught:
        read_image(path, (1, 8, 8))
    assert str(caught.value) == (
        f"{path}: damaged picture (image file is truncated (0 bytes not processed)); "
        "remove the file or replace it with a whole picture"
    )
