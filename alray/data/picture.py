"""How a picture file becomes a sample: a value, so that an exported network can read pictures without its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from alray.data.image_file import read_image
from alray.data.resize import resize


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
