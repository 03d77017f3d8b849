"""Where a measured round takes place: its parties, what they store for each other, and on whose clock.

A party is a generator: it is sent what the others told it and yields what it answers. The same script runs
in this process, on a clock, or in a process of its own, so that its memory shows. Parts lie in memory or on
disk, beside the messages, as they do between silos and servers.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from secagg_workers import worker_cpu_s, worker_peak_mib

from privacy.canonical import canonical_bytes
from privacy.errors import Unprocessable
from privacy.ids import Context, Digest, SiloId
from privacy.plan import VectorTerms
from privacy.wire.envelope import Envelope

Script = Generator[Any, Any, None]
"""Waits for its first message; each further ``yield`` answers one and waits for the next."""
Role = Literal["silo", "server"]
Values = Callable[[SiloId, int, int], NDArray[np.float32]]
MODEL = Digest("22" * 32)
SUM = "sum"
"""Whose parts are the opened sum."""


@dataclass
class Costs:
    """CPU seconds of the silo measured and of all servers, by piece of work, and that silo's bytes."""

    seconds: dict[str, float] = field(default_factory=dict)
    up_bytes: int = 0
    down_bytes: int = 0
    running: bool = False
    """Whether a party that is measured is at work."""

    @contextmanager
    def on(self, piece: str, measured: bool = True) -> Iterator[None]:
        """Add what the block takes to one piece of work, unless it is another silo's."""
        start = _cpu_s()
        yield
        if measured:
            self.seconds[piece] = self.seconds.get(piece, 0.0) + _cpu_s() - start

    def of(self, piece: str) -> float:
        """Seconds of one piece; 0 if the round has none."""
        return self.seconds.get(piece, 0.0)


def _cpu_s() -> float:
    """CPU time of this process and of its workers, if a scheme has any."""
    return time.process_time() + worker_cpu_s()


class Party(Protocol):
    """One silo or server."""

    def ask(self, message: Any = None) -> Any:
        """Its answer."""


class Store(Protocol):
    """Parts by owner and number."""

    def put(self, owner: str, index: int, raw: bytes | memoryview) -> None:
        """Keep a part."""

    def get(self, owner: str, index: int) -> bytes | memoryview:
        """A part that was kept."""


class Memory:
    """A store in this process."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], Any] = {}

    def put(self, owner: str, index: int, raw: bytes | memoryview) -> None:
        self._parts[owner, index] = raw

    def get(self, owner: str, index: int) -> bytes:
        return self._parts[owner, index]


@dataclass(frozen=True)
class Disk:
    """A store that processes share, a file a part."""

    folder: Path

    def put(self, owner: str, index: int, raw: bytes | memoryview) -> None:
        (self.folder / f"{owner}-{index:05}").write_bytes(raw)

    def get(self, owner: str, index: int) -> bytes:
        return (self.folder / f"{owner}-{index:05}").read_bytes()


@dataclass
class Place:
    """A round's cohort and vector, its store, and how its parties are started."""

    silos: tuple[SiloId, ...]
    params: int
    values: Values
    """Silo, start, length → that stretch of its update; its weight is 1."""
    store: Store
    start: Callable[[Role, bool, Script], Party]
    costs: Costs = field(default_factory=Costs)

    @property
    def first(self) -> SiloId:
        """The silo measured; the others do the same work."""
        return self.silos[0]

    def silo(self, silo: SiloId, script: Script) -> Party:
        """Start a silo."""
        return self.start("silo", silo == self.first, script)

    def server(self, script: Script) -> Party:
        """Start a server, whose work counts for the whole cohort."""
        return self.start("server", True, script)

    @contextmanager
    def on(self, piece: str) -> Iterator[None]:
        """Within a party: what the block takes, as a piece of its time, if it is measured."""
        with self.costs.on(piece, self.costs.running):
            yield

    def upload(self, silo: SiloId, index: int, raw: bytes | memoryview) -> None:
        """A part of a silo's update, on its way to a server."""
        self.store.put(silo, index, raw)
        if silo == self.first:
            self.costs.up_bytes += len(raw)


class Local:
    """A party in this process, on the clock while it is at work."""

    def __init__(self, costs: Costs, role: Role, measured: bool, script: Script) -> None:
        self._costs, self._role, self._measured, self._script = costs, role, measured, script
        next(script)

    def ask(self, message: Any = None) -> Any:
        self._costs.running = self._measured
        with self._costs.on(self._role, self._measured):
            answer = self._script.send(message)
        self._costs.running = False
        return answer


class Apart:
    """A party in a forked process of its own, which says at its end how much memory it took."""

    def __init__(self, script: Script) -> None:
        self._here, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(target=_live, args=(there, script))
        self._process.start()
        there.close()

    def ask(self, message: Any = None) -> Any:
        self._here.send(message)
        return self._here.recv()

    def end(self) -> float:
        """MiB at its peak above what it was started with."""
        self._here.send(_END)
        peak: float = self._here.recv()
        self._process.join()
        return peak


_END = "end of round"


def _live(there: Connection, script: Script) -> None:
    started = _memory_mib("VmRSS")
    next(script)
    while (message := there.recv()) != _END:
        there.send(script.send(message))
    there.send(_memory_mib("VmHWM") - started + worker_peak_mib())


def _memory_mib(name: str) -> float:
    """A field of this process's status (proc(5), Linux), in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) / 1024


@dataclass(frozen=True)
class Opened:
    """How to read the sum that a round has stored part by part, and at which scale (0 bits: none)."""

    scale_bits: int
    stretches: tuple[tuple[int, int, int], ...]
    """Number of each part, where it begins, and how many coordinates it holds."""
    read: Callable[[bytes], NDArray[np.float64]]


def size_of(*envelopes: Envelope) -> int:
    """Bytes of messages as they travel."""
    return sum(len(canonical_bytes(envelope)) for envelope in envelopes)


def fresh_context() -> Context:
    """The context of a round of its own."""
    return Context(Digest(os.urandom(32).hex()))


def widest_terms(fits: Callable[[VectorTerms], None]) -> VectorTerms:
    """Terms for coordinates in [−1, 1] with the finest scale that the protocol carries for this cohort."""
    for bits in range(30, 0, -1):
        terms = VectorTerms(coordinate_bound=1.0, scale_bits=bits)
        try:
            fits(terms)
        except Unprocessable:
            continue
        return terms
    raise Unprocessable("silos: no scale fits so many")
