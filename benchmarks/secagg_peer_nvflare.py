"""One round of NVFLARE's homomorphic encryption: its HE filters and aggregator under its default context.

The context is ``HEBuilder``'s: CKKS 8192, [60, 40, 40], scale 2^40, symmetric, one key for all clients.
Silo: ``HEModelEncryptor``, NVFLARE's serialiser (FOBS), and ``HEModelDecryptor`` on the mean. Server:
reading each update, ``HEInTimeAccumulateWeightedAggregator``, and serialising the mean. Bytes: FOBS, which
sends the public context along with every vector.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
import tenseal
from numpy.typing import NDArray
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_opt.he.intime_accumulate_model_aggregator import HEInTimeAccumulateWeightedAggregator
from nvflare.app_opt.he.model_decryptor import HEModelDecryptor
from nvflare.app_opt.he.model_encryptor import HEModelEncryptor
from nvflare.fuel.utils import fobs
from nvflare.lighter.impl.he import HEBuilder


def play(updates: list[NDArray[np.float32]]) -> dict[str, Any]:
    """One round; making the key is on no clock."""
    logging.disable(logging.CRITICAL)
    builder = HEBuilder()
    builder.initialize(None, None)
    clients_context = tenseal.context_from(builder.get_serialized_context(is_client=True))
    seconds = {"encrypt": 0.0, "server": 0.0, "decrypt": 0.0}
    round_context = FLContext()
    round_context.set_prop(AppConstants.CURRENT_ROUND, 0)
    sent: list[bytes] = []
    for index, update in enumerate(updates):
        encryptor = HEModelEncryptor(weigh_by_local_iter=True)
        encryptor.tenseal_context, encryptor.encrypt_layers, encryptor.n_iter = clients_context, [True], 1
        dxo = DXO(DataKind.WEIGHT_DIFF, {"update": update.copy()}, {MetaKey.NUM_STEPS_CURRENT_ROUND: 1})
        started = time.process_time()
        encrypted = encryptor._process(dxo, round_context)
        sent.append(fobs.dumps(encrypted.to_shareable()))
        if index == 0:
            seconds["encrypt"] = time.process_time() - started
    aggregator = HEInTimeAccumulateWeightedAggregator(weigh_by_local_iter=False)
    aggregator.handle_event(EventType.START_RUN, round_context)
    started = time.process_time()
    for index, raw in enumerate(sent):
        shareable = fobs.loads(raw)
        shareable.set_peer_props({ReservedKey.IDENTITY_NAME: f"client-{index}"})
        shareable.add_cookie(AppConstants.CONTRIBUTION_ROUND, 0)
        if not aggregator.accept(shareable, round_context):
            raise SystemExit("nvflare: the aggregator did not accept an update")
    mean = fobs.dumps(aggregator.aggregate(round_context))
    seconds["server"] = time.process_time() - started
    decryptor = HEModelDecryptor()
    decryptor.tenseal_context = clients_context
    received = from_shareable(fobs.loads(mean))
    started = time.process_time()
    opened = decryptor.decryption(
        {name: vector.serialize() for name, vector in received.data.items()}, {"update": True}, round_context
    )
    seconds["decrypt"] = time.process_time() - started
    return {
        "total": np.array(opened["update"]) * len(updates),
        "silo_cpu_s": seconds["encrypt"] + seconds["decrypt"],
        "silo_open_cpu_s": seconds["decrypt"],
        "server_cpu_s": seconds["server"],
        "up_bytes": len(sent[0]),
        "down_bytes": len(mean),
    }
