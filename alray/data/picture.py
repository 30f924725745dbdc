"""From a picture file to a sample."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional

from alray.errors import DataError, Problem


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize images, bilinear with antialiasing.

    Args:
        images: [..., channels, height, width], uint8 or floating point.
        size: new height and width in pixels.
    """
    if tuple(images.shape[-2:]) == size:
        return images
    batch = images.reshape(-1, *images.shape[-3:])
    with torch.no_grad():
        resized = functional.interpolate(batch, size=size, mode="bilinear", antialias=True)
    return resized.reshape(*images.shape[:-2], *size).contiguous()


# The errors that Pillow's decoders raise for damaged files, other than UnidentifiedImageError.
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)
_MOST_NAMED = 10
"""Broken pictures that one error names."""
_MOST_PIXELS = 50_000_000
"""A larger picture is not decoded: a file of 100 kB can stand for many gigabytes of memory."""
_PROGRAMS = ("EPS",)
"""Formats that Pillow lets another program draw: such a file is a program itself."""
_MODES = {1: "L", 3: "RGB"}


def read_image(path: Path, shape: tuple[int, ...], content: bytes | None = None) -> Tensor:
    """Read a picture file of any format that Pillow knows: decode, turn upright (EXIF), convert and resize it.

    Args:
        content: of the file, where it is not on a disk; `path` then names it in messages.
        shape: (channels, height, width) with 1 channel (grayscale) or 3 (RGB). Returns uint8 of that shape.

    Raises:
        DataError: if the file is missing or damaged, or if `shape` is not the shape of a picture.
    """
    if len(shape) != 3 or shape[0] not in _MODES:
        raise DataError(
            f"a picture cannot be read as a sample of shape {tuple(shape)}",
            file=str(path),
            hint="use a source whose samples have 1 or 3 channels, a height and a width",
        )
    with _opened(path, content) as image:
        upright = ImageOps.exif_transpose(_eight_bit(image)).convert(_MODES[shape[0]])
    pixels = torch.from_numpy(numpy.array(upright, dtype=numpy.uint8))
    channels_first = pixels.unsqueeze(0) if pixels.dim() == 2 else pixels.permute(2, 0, 1)
    return resize(channels_first.clone(memory_format=torch.contiguous_format), (shape[1], shape[2]))


def require_pictures(paths: Iterable[Path]) -> None:
    """Open the header of every picture file, and decode none. Raises one DataError that names the broken ones."""
    broken: list[Problem] = []
    others = 0
    for path in paths:
        try:
            with _opened(path):
                pass
        except DataError as error:
            if len(broken) < _MOST_NAMED:
                broken += error.problems
            else:
                others += 1
    if others:
        broken.append(
            Problem(f"{others} more of the pictures cannot be opened", "correct these first, and check again")
        )
    if broken:
        raise DataError.of(tuple(broken))


@contextmanager
def _opened(path: Path, content: bytes | None = None) -> Iterator[Image.Image]:
    """The picture in a file. Raises DataError if there is none, or if it turns out to be damaged inside."""
    if content is None:
        _require_file(path)
    try:
        with Image.open(path if content is None else io.BytesIO(content)) as image:
            width, height = image.size
            if image.format in _PROGRAMS:
                raise DataError(
                    f"{image.format} is a program that draws a picture, and is not run",
                    file=str(path),
                    hint="convert it to PNG",
                )
            if width * height > _MOST_PIXELS:
                raise DataError(
                    f"the picture has {width:,} x {height:,} pixels, and at most {_MOST_PIXELS:,} are decoded",
                    file=str(path),
                    hint="make it smaller",
                )
            yield image
    except UnidentifiedImageError as error:
        raise DataError(
            "this is not a picture in a known format",
            file=str(path),
            hint="remove the file, or replace it by a complete picture",
        ) from error
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system refused to read it
        raise DataError(
            f"damaged picture ({error})",
            file=str(path),
            hint="remove the file, or replace it by a complete picture",
        ) from error


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise DataError("this is a folder, not a picture", file=str(path), hint="give the paths of its picture files")
    if not path.is_file():
        raise DataError("picture not found", file=str(path), hint="give the path of a picture file")


def _eight_bit(image: Image.Image) -> Image.Image:
    """Scale a grayscale picture of 16 bits to 8 bits. Pillow's own conversion would clip it to white."""
    if not image.mode.startswith("I"):
        return image
    values = numpy.asarray(image).astype(numpy.int64)
    return Image.fromarray((values.clip(0, 65535) >> 8).astype(numpy.uint8))


@dataclass(frozen=True)
class Picture:
    """How a picture file becomes a sample. An exported network carries this value, so it needs no data to read one.

    The file is read with the shape `read_as` (channels, height, width), then resized to `size` (height, width), in
    pixels.

    Attributes:
        as_float: whether the values are scaled to 0..1 in between, so that resizing does not round; otherwise the
            sample is uint8.
    """

    read_as: tuple[int, ...]
    size: tuple[int, ...]
    as_float: bool = False

    def read(self, path: Path) -> Tensor:
        """Return the sample [channels, *size] before normalisation.

        Raises DataError if the file is missing or damaged, or if `read_as` is not the shape of a picture.
        """
        pixels = read_image(path, self.read_as)
        if self.as_float:
            pixels = pixels.to(torch.float32).div_(255.0)
        height, width = self.size
        return resize(pixels, (height, width))
