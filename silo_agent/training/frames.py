"""What goes between the agent and its worker: a header of JSON behind its length, then raw arrays.

    4 bytes    length of the header, big-endian
    header     {"kind": …, "fields": {…}, "arrays": [[name, type, shape], …]} in UTF-8
    arrays     one after the other, row by row, little-endian

Nothing that is received is unpickled or run. Whoever receives says how much it takes.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import MalformedMessage

MAX_HEADER: Final = 1 << 26
"""A job's terms, with the layout of its model."""
_HEAD: Final = struct.Struct(">I")
_TYPES: Final = {name: np.dtype(name) for name in ("<f4", "<f8", "<i8", "|u1")}
_DIMENSIONS: Final = 8
Array = NDArray[Any]


class Closed(Exception):
    """The other end is gone."""


@dataclass(frozen=True)
class Frame:
    """One request or one answer."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    arrays: Mapping[str, Array] = field(default_factory=dict, repr=False)
    """By name; float32, float64, int64 or uint8 of any shape."""


def send_frame(wire: socket.socket, frame: Frame) -> None:
    """
    Raises:
        Closed: the other end is gone. KeyError: an array of another type, which is a bug.
    """
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in frame.arrays.items()}
    told = [[name, _TYPES[array.dtype.str].str, array.shape] for name, array in arrays.items()]
    head = json.dumps({"kind": frame.kind, "fields": dict(frame.fields), "arrays": told}).encode()
    try:
        wire.sendall(_HEAD.pack(len(head)) + head)
        for array in arrays.values():
            if array.size:
                wire.sendall(array.reshape(-1).view(np.uint8).data)
    except ConnectionError as error:
        raise Closed from error


def receive_frame(wire: socket.socket, most: int) -> Frame:
    """One frame, whole.

    Args:
        most: bytes of arrays.

    Raises:
        Closed: the other end is gone. MalformedMessage: it is longer than that, or no frame.
    """
    (length,) = _HEAD.unpack(_filled(wire, np.empty(_HEAD.size, np.uint8)).tobytes())
    if length > MAX_HEADER:
        raise MalformedMessage(f"worker: expected a header of at most {MAX_HEADER} bytes, got {length}")
    try:
        told = json.loads(_filled(wire, np.empty(length, np.uint8)).tobytes())
        kind, fields, listed = told["kind"], told["fields"], told["arrays"]
        shapes = {str(name): (_TYPES[dtype], _shape(shape)) for name, dtype, shape in listed}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedMessage(f"worker: expected a frame, got none ({type(error).__name__})") from None
    if not (isinstance(kind, str) and isinstance(fields, dict) and isinstance(listed, list)):
        raise MalformedMessage("worker: expected a frame's kind, fields and arrays")
    if len(shapes) != len(listed):
        raise MalformedMessage("worker: expected arrays of different names")
    size = sum(dtype.itemsize * math.prod(shape) for dtype, shape in shapes.values())
    if size > most:
        raise MalformedMessage(f"worker: expected arrays of at most {most} bytes, got {size}")
    arrays = {}
    for name, (dtype, shape) in shapes.items():
        flat = np.empty(math.prod(shape), dtype)
        _filled(wire, flat.view(np.uint8))
        arrays[name] = flat.reshape(shape)
    return Frame(kind, fields, arrays)


def _shape(told: object) -> tuple[int, ...]:
    if not isinstance(told, list) or len(told) > _DIMENSIONS:
        raise ValueError("shape")
    if not all(type(extent) is int and extent >= 0 for extent in told):
        raise ValueError("shape")
    return tuple(told)


def _filled(wire: socket.socket, buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    view, got = buffer.data, 0
    while got < len(buffer):
        try:
            count = wire.recv_into(view[got:])
        except ConnectionError as error:
            raise Closed from error
        if not count:
            raise Closed
        got += count
    return buffer
