"""A picture's mask: the file of its name in a folder beside, as 0 or 1 for each pixel of the square."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.grey import grey_square, image_pixels
from silo_agent.data.misfits import Misfit

_ENDINGS: Final = (".png", ".tif", ".tiff", ".bmp")
"""Formats that lose nothing; a mask may have another ending than its picture."""


def mask_cells(
    masks: Path, name: Path, picture: NDArray[np.float32], side: int, where: str
) -> dict[str, str]:
    """Cells ``mask_0`` … of the mask of one picture, padded and resized as the picture is.

    A pixel of the square is 1 where at least half of what it covers is: a mean of boxes, cut at ½.

    Args:
        name: of the picture, relative to its folder.
        picture: its pixels, float32[rows, columns].

    Raises:
        Misfit: there is no such file, or several; it has another size than the picture, or other
            values than 0 and one more.
    """
    found = [path for ending in _ENDINGS if (path := masks / name.with_suffix(ending)).is_file()]
    if len(found) != 1:
        told = (
            f"expected one mask in {masks} under the picture's name ({', '.join(_ENDINGS)}), got {len(found)}"
        )
        raise Misfit(where, None, told)
    if not found[0].resolve().is_relative_to(masks.resolve()):
        raise Misfit(where, None, f"expected its mask in the folder {masks}, got a link out of it")
    pixels = image_pixels(found[0], f"{where}, its mask")
    if pixels.shape != picture.shape:
        raise Misfit(where, None, "expected a mask of the picture's own size, got another")
    if len(np.unique(pixels[pixels > 0])) > 1:
        told = "expected a mask of 0 and one other value, got several; write one class, without smoothing"
        raise Misfit(where, None, told)
    square = grey_square((pixels > 0).astype(np.float32), side)
    return {f"mask_{number}": str(int(float(cell) >= 0.5)) for number, cell in enumerate(square)}


def mask_names(side: int) -> list[str]:
    """The columns."""
    return [f"mask_{number}" for number in range(side**2)]
