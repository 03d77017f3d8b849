"""Pairwise masks with one server: five signed steps, after Bonawitz et al. 2017 (CCS, eprint 2017/281).

A silo adds to its update one mask of its own and one for each peer; the peers' masks cancel in the sum.
Shamir shares, dealt beforehand, let t silos take away the masks of those who dropped out.

| step | silo → server | module of the silo half |
| --- | --- | --- |
| 1 keys | two public keys, a commitment to the own mask's seed | ``silo_keys`` |
| 2 shares | for each peer, sealed: a share of its mask key and a share of its seed | ``silo_keys`` |
| 3 masked | the masked update, in parts, and a signed manifest of it | ``silo_masking`` |
| 4 consistency | a signature on the one set of survivors | ``silo_opening`` |
| 5 unmask | seed shares of survivors *or* key shares of dropouts | ``silo_opening`` |

The sum half is ``collecting`` (steps 1 to 3), ``opening`` (4 and 5) and ``unmasking`` (the sum itself).
"""
