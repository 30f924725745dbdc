"""From a picture file to a sample."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional

from alray.errors import DataError


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear, antialiased. images: [..., channels, height, width] uint8 or floating point; size: pixels."""
    if tuple(images.shape[-2:]) == size:
        return images
    batch = images.reshape(-1, *images.shape[-3:])
    with torch.no_grad():
        resized = functional.interpolate(batch, size=size, mode="bilinear", antialias=True)
    return resized.reshape(*images.shape[:-2], *size).contiguous()


# What Pillow's decoders raise on damaged files, besides saying that they do not know the format.
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)
_MODES = {1: "L", 3: "RGB"}


def read_image(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Decode, turn upright (EXIF), convert to the channels of `shape`, resize. Any format Pillow reads.

    shape: (channels, height, width) with 1 channel (grayscale) or 3 (RGB). Returns uint8 of that shape.
    Raises DataError where the file is missing or not a whole picture, or `shape` is not a picture's.
    """
    if len(shape) != 3 or shape[0] not in _MODES:
        raise DataError(
            f"a picture cannot become a sample of shape {tuple(shape)}",
            file=str(path),
            mend="pictures have 1 or 3 channels, a height and a width",
        )
    if not path.is_file():
        raise DataError("picture not found", file=str(path), mend="give the path of a picture file")
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(_eight_bit(image)).convert(_MODES[shape[0]])
    except UnidentifiedImageError as error:
        raise DataError(
            "not a picture in any known format",
            file=str(path),
            mend="remove the file or replace it with a whole picture",
        ) from error
    except _DAMAGED as error:
        raise DataError(
            f"damaged picture ({error})",
            file=str(path),
            mend="remove the file or replace it with a whole picture",
        ) from error
    pixels = torch.from_numpy(numpy.array(upright, dtype=numpy.uint8))
    channels_first = pixels.unsqueeze(0) if pixels.dim() == 2 else pixels.permute(2, 0, 1)
    return resize(channels_first.clone(memory_format=torch.contiguous_format), (shape[1], shape[2]))


def _eight_bit(image: Image.Image) -> Image.Image:
    """Grayscale pictures of 16 bits scaled to 8: Pillow's own conversion would clip them to white."""
    if not image.mode.startswith("I"):
        return image
    values = numpy.asarray(image).astype(numpy.int64)
    return Image.fromarray((values.clip(0, 65535) >> 8).astype(numpy.uint8))


@dataclass(frozen=True)
class Picture:
    """A file is decoded and brought to the shape `read_as` (channels, height, width), then resized to `size`, pixels.

    as_float: whether it is scaled to 0..1 between the two, so that resizing rounds nothing; otherwise it is uint8.
    """

    read_as: tuple[int, ...]
    size: tuple[int, ...]
    as_float: bool = False

    def read(self, path: Path) -> Tensor:
        """[channels, *size], before normalisation.

        Raises DataError where the file is missing or damaged, or `read_as` is no picture's shape.
        """
        pixels = read_image(path, self.read_as)
        if self.as_float:
            pixels = pixels.to(torch.float32).div_(255.0)
        height, width = self.size
        return resize(pixels, (height, width))
