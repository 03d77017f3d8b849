"""Fetch the final model as a party to whom the policy releases it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.loader import LoadedPolicy
from privacy.errors import SignatureRejected
from privacy.keystore import load_identity
from privacy.update import FLOAT_BYTES, model_digest, model_vector
from sealsum.demo.folder import DemoFolder
from sealsum.demo.patients import HOSPITALS
from sealsum.sdk import JobHandle
from silo_agent.transport import FederationClient


def fetch_final_model(
    job: JobHandle, policy: LoadedPolicy, folder: DemoFolder, aggregator_url: str
) -> NDArray[np.float32]:
    """The finished job's model, float32[d]: by the researcher, or by a hospital if only hospitals may.

    Raises:
        SignatureRejected: other bytes came than its digest names.
    """
    if policy.model.spec.release.model.to == "researchers":
        return job.model()
    terms, digest = job.spec.model, job.now().model
    hospital = load_identity(folder.state(HOSPITALS[0].silo))
    with FederationClient(hospital, aggregator_url) as client:
        raw = client.get_bytes(f"/v1/models/{digest}", limit=FLOAT_BYTES * terms.parameters)
    came = model_digest(terms, [raw])
    if came != digest:
        raise SignatureRejected(f"model: expected digest {digest[:16]}…, got {came[:16]}…")
    return model_vector(terms, raw)
