"""What goes between agent and worker reads back as it was, and what is none of it is refused."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.findings import Finding, PolicyRefusal
from privacy.errors import ConfigurationError, MalformedMessage, NotFound, SealsumError
from privacy.secagg.vectors import VectorName
from silo_agent.data.records import Records
from silo_agent.problems import Diverged, OutOfMemory, Stopped
from silo_agent.training.carried import (
    error_of,
    frame_of_error,
    frame_of_records,
    frame_of_trained,
    records_of,
    trained_of,
)
from silo_agent.training.frames import Closed, Frame, receive_frame, send_frame
from silo_agent.training.work import Trained
from silo_agent.update import FloatUpdate, GridUpdate

VALUES = np.array([1.0, -2.5, np.nan], dtype=np.float32)
STEPS = np.array([1.0, -7.0])


@contextlib.contextmanager
def wire() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def carried(frame: Frame) -> Frame:
    """Through a real socket."""
    with wire() as (one, other):
        sender = threading.Thread(target=send_frame, args=(one, frame))
        sender.start()
        got = receive_frame(other, 1 << 24)
        sender.join()
    return got


def raw(data: bytes, most: int = 1 << 20) -> Frame:
    with wire() as (one, other):
        one.sendall(data)
        one.close()
        return receive_frame(other, most)


@pytest.mark.parametrize(
    "update",
    [
        FloatUpdate(VALUES),
        FloatUpdate(VALUES, {VectorName("hessian"): FloatUpdate(VALUES[:1])}, 0.25, {"own": VALUES[:0]}),
        GridUpdate(STEPS, {VectorName("metrics"): GridUpdate(STEPS[:1])}, {"control": VALUES.reshape(3, 1)}),
    ],
)
def test_an_update_comes_back_bit_for_bit(update: FloatUpdate | GridUpdate) -> None:
    back = trained_of(carried(frame_of_trained(Trained(update, 0.5))))
    assert back.weight == 0.5
    assert type(back.update) is type(update)
    for name in ("values", "steps"):
        if hasattr(update, name):
            assert getattr(back.update, name).tobytes() == getattr(update, name).tobytes()
    assert getattr(back.update, "weight", None) == getattr(update, "weight", None)
    assert back.update.keep.keys() == update.keep.keys()
    assert all(back.update.keep[name].shape == array.shape for name, array in update.keep.items())
    assert {name: type(one) for name, one in back.update.further.items()} == {
        name: type(one) for name, one in update.further.items()
    }


@pytest.mark.parametrize("units", [None, np.array([0, 1, 1])])
def test_records_come_back_as_they_were(units: Any) -> None:
    records = Records(
        features=np.arange(6, dtype=np.float32).reshape(3, 2),
        labels=np.array([0, 2, 1], dtype=np.float32),
        patients=("ä", "b", "b"),
        classes=3,
        units=units,
        views=1,
        listed=7,
    )
    back = records_of(carried(frame_of_records(records)))
    assert back.features.tobytes() == records.features.tobytes()
    assert back.labels.tobytes() == records.labels.tobytes()
    assert (back.patients, back.classes, back.kind, back.listed) == (records.patients, 3, "classes", 7)
    assert (back.units is None) if units is None else np.array_equal(back.units, units)  # type: ignore[arg-type] # it is one


@pytest.mark.parametrize("kind", [ConfigurationError, Diverged, OutOfMemory, Stopped, SealsumError])
def test_an_error_keeps_its_kind_and_its_words(kind: type[SealsumError]) -> None:
    back = error_of(carried(frame_of_error(kind("training: expected this, got that"))))
    assert type(back) is kind
    assert str(back) == "training: expected this, got that"


def test_a_refusal_keeps_its_findings_and_an_error_without_a_name_here_becomes_its_parent() -> None:
    refusal = PolicyRefusal("dataset", [Finding("records.minimum", "Few.", "5", "fewer", "add some")])
    back = error_of(carried(frame_of_error(refusal)))
    assert isinstance(back, PolicyRefusal)
    assert (back.subject, back.findings) == (refusal.subject, refusal.findings)
    assert type(error_of(carried(frame_of_error(NotFound("model: none"))))) is SealsumError


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises((Closed, MalformedMessage)):
        raw(data)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_parts_of_the_right_length_that_say_nothing_are_refused(head: bytes, body: bytes) -> None:
    told = len(head).to_bytes(4, "big") + head + body
    with pytest.raises(MalformedMessage):
        raw(told)


def test_more_than_was_asked_for_is_refused_before_it_is_read() -> None:
    head = b'{"kind": "done", "fields": {}, "arrays": [["x", "<f4", [1048576, 1048576]]]}'
    with pytest.raises(MalformedMessage, match="at most 1048576 bytes, got 4398046511104"):
        raw(len(head).to_bytes(4, "big") + head)
    with pytest.raises(MalformedMessage, match="at most"):
        raw((1 << 31).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("fields", "arrays"),
    [
        ({"weight": 1.0}, {}),
        ({"weight": 1.0}, {"floats": STEPS}),
        ({"weight": 1.0}, {"floats": VALUES.reshape(3, 1)}),
        ({"weight": 1.0}, {"floats": VALUES, "steps": STEPS}),
        ({"weight": 1.0}, {"floats": VALUES, "keep.own": STEPS}),
        ({"weight": 1.5}, {"floats": VALUES}),
        ({"weight": "1"}, {"floats": VALUES}),
        ({"weight": float("nan")}, {"floats": VALUES}),
        ({}, {"floats": VALUES}),
        ({"weight": 1.0, "own_weight": 0}, {"floats": VALUES}),
    ],
)
def test_a_worker_that_answers_no_update_is_refused(fields: dict[str, Any], arrays: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage, match="worker: expected"):
        trained_of(Frame("done", fields, arrays))


@pytest.mark.parametrize(
    "frame",
    [
        Frame("failed", {"error": "SystemExit", "text": "0"}),
        Frame("failed", {}),
        Frame("refused", {"subject": "x", "findings": []}),
        Frame("refused", {"subject": "x", "findings": [{"rule": "A"}]}),
        Frame("evil", {}),
    ],
)
def test_an_error_is_made_of_known_kinds_only(frame: Frame) -> None:
    with pytest.raises(MalformedMessage):
        error_of(frame)


@pytest.mark.parametrize(
    "arrays",
    [
        '[["x", "<f4", [-1]]]',
        '[["x", "|O", [1]]]',
        '[["x", "<f4", [1.5]]]',
        '[["x", "<f4", [true]]]',
        f'[["x", "<f4", {[1] * 9}]]',
        '[["x", "<f4", [0]], ["x", "<f4", [0]]]',
        '[["x", "<f4"]]',
        "{}",
        "3",
    ],
)
def test_arrays_of_other_types_and_shapes_are_refused(arrays: str) -> None:
    head = f'{{"kind": "done", "fields": {{}}, "arrays": {arrays}}}'.encode()
    with pytest.raises(MalformedMessage):
        raw(len(head).to_bytes(4, "big") + head + bytes(64))
