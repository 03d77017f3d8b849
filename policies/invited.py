"""Which silos a round invites where its phase asks for a part of them: by a public draw, one institution
after another.

Nobody chooses: the order follows from the job and the round. What a threat model asks of a cohort is judged
in the plan all the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from privacy.ids import Digest, SiloId
from privacy.training_terms import Phase


@dataclass(frozen=True)
class Drawn:
    """What decides the draw of a round."""

    job: Digest
    phase: Phase | None
    round: int

    def rank(self, silo: SiloId) -> bytes:
        """SHA-256("sealsum/invited/v1" ‖ 0x00 ‖ job ‖ round ‖ silo): the lowest come first."""
        said = b"sealsum/invited/v1\x00" + bytes.fromhex(self.job) + self.round.to_bytes(8, "big")
        return hashlib.sha256(said + silo.encode()).digest()


def invited(drawn: Drawn, entities: Mapping[SiloId, str], least: int) -> tuple[SiloId, ...]:
    """As many of the silos that are here as the phase asks for, ``least`` of them at any rate; all, where it
    asks for no part of them.

    Args:
        entities: silo → institution. A second silo of an institution comes after every institution's first.
    """
    seen: Counter[str] = Counter()
    places: list[tuple[int, bytes, SiloId]] = []
    for silo in sorted(entities, key=drawn.rank):
        places.append((seen[entities[silo]], drawn.rank(silo), silo))
        seen[entities[silo]] += 1
    wanted = len(places) if drawn.phase is None else drawn.phase.wanted(len(places))
    count = max(least, wanted)
    return tuple(silo for _, _, silo in sorted(places)[:count])
