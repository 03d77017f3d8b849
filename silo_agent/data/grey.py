"""One picture as the pixels of a grey square, by itself: no other picture moves its values."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from silo_agent.data.misfits import Misfit

MOST_PIXELS: Final = 1 << 26
"""Of the square into which a picture is padded: one of 8,192 a side, 256 MiB."""
_BROKEN: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    Image.DecompressionBombError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)
"""What Pillow raises of damaged files."""
_FORMATS: Final = ("PNG", "JPEG", "TIFF", "BMP")
"""None of those whose readers start other programs."""
_MODES: Final = ("1", "L", "LA", "P", "RGB", "RGBA")


def grey_square(pixels: NDArray[np.float32], side: int) -> list[str]:
    """Cells of float32[rows, columns] after padding with its darkest value and resizing, row by row.

    Shrinking takes means of boxes; enlarging is linear. Both stay within the picture's own range.
    """
    longest = max(pixels.shape)
    above, left = ((longest - length) // 2 for length in pixels.shape)
    below, right = longest - pixels.shape[0] - above, longest - pixels.shape[1] - left
    square = np.pad(pixels, ((above, below), (left, right)), constant_values=float(pixels.min()))
    how = Image.Resampling.BOX if longest >= side else Image.Resampling.BILINEAR
    resized = Image.fromarray(square).resize((side, side), how)
    return [repr(float(value)) for value in np.asarray(resized).reshape(-1)]


def assert_fits(rows: int, columns: int, where: str) -> None:
    """Raises Misfit unless the picture has pixels, and no more in its square than there may be."""
    if not (min(rows, columns) >= 1 and max(rows, columns) ** 2 <= MOST_PIXELS):
        told = f"expected 1 to {math.isqrt(MOST_PIXELS)} pixels a side, got {rows} rows, {columns} columns"
        raise Misfit(where, None, told)


def image_pixels(path: Path, where: str) -> NDArray[np.float32]:
    """float32[rows, columns], 0 … 255, of a PNG, JPEG, TIFF or BMP; colours as their luminance (ITU-R 601).

    Raises:
        Misfit: it is none, has several frames, over 8 bits a channel or too many pixels.
    """
    try:
        with Image.open(path, formats=_FORMATS) as image:
            assert_fits(image.height, image.width, where)
            if getattr(image, "n_frames", 1) != 1 or image.mode not in _MODES:
                told = f"expected one frame with 8 bits a channel, got mode {image.mode}"
                raise Misfit(where, None, told)
            return np.asarray(image.convert("L"), dtype=np.float32)
    except Misfit:
        raise
    except _BROKEN as error:
        told = f"expected a picture as {', '.join(_FORMATS)} ({type(error).__name__})"
        raise Misfit(where, None, told) from None
