"""One picture file as a tensor."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from alray.data.resize import resize
from alray.errors import DataError

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
