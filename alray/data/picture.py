"""From a picture file to a sample."""

from __future__ import annotations

import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from alray.core.errors import DataError, Problem
from alray.models.task import Label


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
_OF_SET = "remove the file, or replace it by a complete picture"
_OF_INPUT = "give the path of a picture file: this network was trained on pictures"
_MODES = {1: "L", 3: "RGB"}


_DEEP = 65_535
"""White in a picture of whole numbers with more than 8 bits; in floating point it is 1. Black is 0."""
_DARK = 1 / 16
"""A set of deep pictures that uses no more of its range than this is refused: few of 256 levels would be left."""
_LOOKED_AT = 64
"""Pictures of a set that are decoded before a run, to tell what becomes of them."""
_ORIENTATION = 0x0112  # of EXIF
_Pixels = Annotated[int, Field(ge=1, le=65_535)]
"""A number of channels, or of pixels: pydantic checks those of a `Picture` that a file holds."""


def read_image(
    path: Path,
    shape: tuple[int, ...],
    content: bytes | None = None,
    *,
    hint: str = _OF_SET,
) -> Tensor:
    """Read a picture file of any format that Pillow knows: decode, turn upright (EXIF), convert and resize it.

    Args:
        content: of the file, where it is not on a disk; `path` then names it in messages.
        shape: (channels, height, width) with 1 channel (grayscale) or 3 (RGB). Returns uint8 of that shape.
        hint: what to do about a file that is no picture.

    Raises:
        DataError: if the file is missing or damaged, if its values lie beyond black or white, or if `shape` is not
            the shape of a picture.
    """
    if len(shape) != 3 or shape[0] not in _MODES:
        raise DataError(
            f"a picture cannot be read as a sample of shape {tuple(shape)}",
            file=str(path),
            hint="use a source whose samples have 1 or 3 channels, a height and a width",
        )
    with _opened(path, content, hint) as image:
        upright = ImageOps.exif_transpose(_eight_bit(image, path))
        flat = _on_white(upright).convert(_MODES[shape[0]])
    pixels = torch.from_numpy(numpy.array(flat, dtype=numpy.uint8))
    channels_first = pixels.unsqueeze(0) if pixels.dim() == 2 else pixels.permute(2, 0, 1)
    return resize(channels_first.clone(memory_format=torch.contiguous_format), (shape[1], shape[2]))


class PictureFiles(ABC):
    """A set of pictures that are decoded when they are read. An entry is uint8 [3, *size] and a label.

    Attributes:
        labels: class numbers, or [N, labels] floating point.
        size: height and width, pixels.
    """

    labels: tuple[int, ...] | Tensor
    size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Label]:
        path, content = self.encoded(index)
        return read_image(path, (3, *self.size), content), self.labels[index]

    @abstractmethod
    def encoded(self, index: int) -> tuple[Path, bytes | None]:
        """A picture's path and, where it is not on a disk, its content, as for `read_image`."""

    @property
    def names(self) -> list[tuple[str, str]]:
        """The folder and the name of each file; empty where pictures do not lie on a disk."""
        return []


@dataclass(frozen=True)
class PictureSet(PictureFiles):
    """Pictures in files of their own."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...] | Tensor
    size: tuple[int, int]

    def encoded(self, index: int) -> tuple[Path, None]:
        return self.paths[index], None

    @property
    def names(self) -> list[tuple[str, str]]:
        return [(path.parent.name, path.name) for path in self.paths]


def told_of(pictures: PictureFiles) -> tuple[str, ...]:
    """What the user should know of how these pictures are read, in sentences: the range of deep ones, that
    transparent ones are laid on white, and that of several pages or frames the first one is read. A few of the
    pictures, evenly spaced, are decoded for it.

    Raises:
        DataError: if the content of all deep or of all transparent ones among these would be lost.
    """
    deep: Path | None = None
    several: tuple[Path, int] | None = None
    transparent: Path | None = None
    used, visible = 0.0, False
    for index in range(0, len(pictures), max(1, len(pictures) // _LOOKED_AT)):
        path, content = pictures.encoded(index)
        with _opened(path, content) as image:
            if several is None and (pages := getattr(image, "n_frames", 1)) > 1:
                several = path, pages
            if _is_deep(image):
                deep = deep or path
                used = max(used, _share_used(image, path))
            if (whole := _opacity(image)) is not None:
                transparent = transparent or path
                laid: Any = _on_white(whole).getextrema()  # two values for each of three channels
                visible = visible or any(least != most for least, most in laid)
    notes = []
    if several is not None:
        notes.append(f"{several[0]} has {several[1]} pages or frames: of such files the first one alone is read")
    if deep is not None:
        ends = "0 and 65,535 (0 and 1 in floating point)"
        if 0 < used <= _DARK:
            raise DataError(
                f"the pictures have more than 8 bits, of which {ends} are black and white, and use only {used:.2%} of "
                "that range: almost all of them would become black",
                file=str(deep),
                hint="scale their values to the whole range",
            )
        notes.append(f"{deep} has more than 8 bits for each pixel: {ends} are black and white")
    if transparent is not None:
        if not visible:
            raise DataError(
                "nothing is to be seen of this picture on white: it is transparent in places, and has one colour",
                file=str(transparent),
                hint="lay the pictures on another colour",
            )
        notes.append(f"{transparent} is transparent in places: it is laid on white")
    return tuple(notes)


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
def _opened(path: Path, content: bytes | None = None, hint: str = _OF_SET) -> Iterator[Image.Image]:
    """The picture in a file. Raises DataError if there is none, or if it turns out to be damaged inside."""
    if content is None:
        _require_file(path)
    try:
        # Pillow maps a file into memory if it knows its name, and then turns some TIFF files by the wrong size.
        with path.open("rb") if content is None else io.BytesIO(content) as file, Image.open(file) as image:
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
            hint=hint,
        ) from error
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system refused to read it
        raise DataError(
            f"damaged picture ({error})",
            file=str(path),
            hint=hint,
        ) from error


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise DataError("this is a folder, not a picture", file=str(path), hint="give the paths of its picture files")
    if not path.is_file():
        raise DataError("picture not found", file=str(path), hint="give the path of a picture file")


def _is_deep(image: Image.Image) -> bool:
    """Whether a picture has more than 8 bits for each value. Pillow opens such colours with 8 bits, but knows what the
    file holds."""
    return (
        image.mode == "F"
        or image.mode.startswith("I")
        or any(raw.endswith((";16B", ";16L", ";16N")) for raw in _raw_modes(image))
    )


def _raw_modes(image: Image.Image) -> list[str]:
    """How the tiles of a picture that is not decoded yet lie in the file, in Pillow's words."""
    return [
        part
        for tile in getattr(image, "tile", [])
        for part in (tile.args if isinstance(tile.args, tuple) else (tile.args,))
        if isinstance(part, str)
    ]


def _eight_bit(image: Image.Image, path: Path) -> Image.Image:
    """Scale a grey picture of more than 8 bits to 8 bits. Pillow's conversion would clip it to white or black; of deep
    colours Pillow itself takes the upper 8 bits."""
    values = _grey_values(image)
    if values is None:
        return image
    scaled = Image.fromarray(_levels(values, path))
    # Only now: decoding a TIFF file turns it upright.
    scaled.getexif()[_ORIENTATION] = image.getexif().get(_ORIENTATION, 1)
    return scaled


def _grey_values(image: Image.Image) -> NDArray[Any] | None:
    """The values of a grey picture of more than 8 bits, [height, width], int64 or float64. None: it is another one."""
    if image.mode == "F":
        return numpy.asarray(image).astype(numpy.float64)
    return numpy.asarray(image).astype(numpy.int64) if image.mode.startswith("I") else None


def _share_used(image: Image.Image, path: Path) -> float:
    """The share of its range that a picture of more than 8 bits uses. Raises DataError for what is beyond the range."""
    values = _grey_values(image)
    if values is not None:
        _levels(values, path)
        return float(values.max()) / _white_of(values)
    brightest = int(numpy.asarray(image.convert("RGB")).max())
    return (brightest + 1) / 256 if brightest or _opacity(image) is None else 0.0


def _white_of(values: NDArray[Any]) -> int:
    return 1 if values.dtype == numpy.float64 else _DEEP


def _levels(values: NDArray[Any], path: Path) -> NDArray[numpy.uint8]:
    """The values as levels 0..255: the upper 8 bits of whole numbers."""
    white = _white_of(values)
    least, most = float(values.min()), float(values.max())
    if not (numpy.isfinite(least) and numpy.isfinite(most)):
        raise DataError("the picture has a value that is not finite", file=str(path), hint="replace the picture")
    level = white / 255
    if least < -level or most > white + level:
        raise DataError(
            f"the picture has values from {least:,g} to {most:,g}, and black and white are 0 and {white:,g}",
            file=str(path),
            hint="scale the values of all pictures to this range",
        )
    levels = numpy.rint(values / level) if white == 1 else values >> 8
    return levels.clip(0, 255).astype(numpy.uint8)


def _opacity(image: Image.Image) -> Image.Image | None:
    """The picture with its opacity, RGBA; None if all of it is opaque."""
    if not image.has_transparency_data:
        return None
    whole = image.convert("RGBA")
    extremes: Any = whole.getextrema()  # two values for each of four channels
    return None if extremes[3] == (255, 255) else whole


def _on_white(image: Image.Image) -> Image.Image:
    whole = _opacity(image)
    if whole is None:
        return image
    return Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole).convert("RGB")


@dataclass(frozen=True)
class Picture:
    """How a picture file becomes a sample. An exported network carries this value, so it needs no data to read one.

    The file is read with the shape `read_as` (channels, height, width), then resized to `size` (height, width), in
    pixels.

    Attributes:
        as_float: whether the values are scaled to 0..1 in between, so that resizing does not round; otherwise the
            sample is uint8.
    """

    read_as: Annotated[tuple[_Pixels, ...], Field(min_length=3, max_length=3)]
    size: Annotated[tuple[_Pixels, ...], Field(min_length=2, max_length=2)]
    as_float: bool = False

    def read(self, path: Path) -> Tensor:
        """Return the sample [channels, *size] before normalisation.

        Raises DataError if the file is missing or damaged, or if `read_as` is not the shape of a picture.
        """
        pixels = read_image(path, self.read_as, hint=_OF_INPUT)
        if self.as_float:
            pixels = pixels.to(torch.float32).div_(255.0)
        height, width = self.size
        return resize(pixels, (height, width))
