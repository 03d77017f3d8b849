"""Sums under a joint homomorphic key that no party holds: BFV (exact) and CKKS, through OpenFHE.

A fresh joint key for each round, n of n: it is the sum of key shares, so that every silo that has a share in
it must help to open, and any one honest silo keeps everything but the one sum closed.

| step | silo → server | module of the silo half |
| --- | --- | --- |
| 1 commit | a commitment to its public key share | ``silo_keys`` |
| 2 reveal | the public key share | ``silo_keys`` |
| 3 manifest | digests of its ciphertexts, before anyone sees a ciphertext | ``silo_encrypting`` |
| – | the ciphertexts, once all manifests are known | ``silo_encrypting`` |
| 4 partial | its partial decryption of the sum, which it has added up itself | ``silo_opening`` |

The server half is ``collecting`` (steps 1 to 3), ``summing`` (the sum, 4, and what it opens to). OpenFHE
runs in a worker process (``worker``, ``openfhe_worker``); sums are added without it (``polynomials``).
"""
