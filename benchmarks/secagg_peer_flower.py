"""One round of Flower's SecAgg+: its ``SecAggPlusWorkflow`` against its client mod ``secaggplus_mod``.

Full graph, threshold ⌊n/2⌋ + 1 as for ``pairwise`` here, quantisation by its defaults (range ±8, 2^22
steps). Silo: all that the mod does, less the client's own ``call_next``. Server: the workflow less the
clients. Bytes: the messages' contents as Flower's protobuf. It does less than ``pairwise``: its masks are
drawn by NumPy's RandomState from a 32-bit seed, no message is signed, and there is no consistency step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.serde import recorddict_to_proto
from flwr.compat.common.recorddict_compat import fitres_to_recorddict, parameters_to_arrayrecord
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

_WEIGHT = 1000
"""Examples of each client; Flower's default ``max_weight``, so that the encoded weight is 1."""


class _Proxy:
    """What the workflow asks of a client proxy when it configures a round: its node."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.cid = str(node_id)


class _AllClients(FedAvg):
    """Asks every client, and keeps the mean that the workflow hands to the strategy."""

    def __init__(self, clients: int) -> None:
        super().__init__()
        self._clients = clients
        self.mean: NDArray[np.float64] = np.empty(0)

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        return [(_Proxy(node), FitIns(parameters, {})) for node in range(1, self._clients + 1)]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        if failures or len(results) != self._clients:
            raise SystemExit(f"flower: {failures}")
        (self.mean,) = parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


class _Clients:
    """The grid: hands each message to its client's mod and the replies back, with the first one's costs."""

    def __init__(self, updates: list[NDArray[np.float32]]) -> None:
        self._updates = updates
        self._contexts = [Context(1, node, {}, RecordDict(), {}) for node in range(1, len(updates) + 1)]
        self.first_s = self.all_s = 0.0
        self.up_bytes = self.down_bytes = 0

    def send_and_receive(self, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        started = time.process_time()
        replies = [self._ask(message) for message in messages]
        self.all_s += time.process_time() - started
        return replies

    def _ask(self, message: Message) -> Message:
        node, training_s = message.metadata.dst_node_id, 0.0

        def call_next(asked: Message, context: Context) -> Message:
            nonlocal training_s
            started = time.process_time()
            parameters = ndarrays_to_parameters([self._updates[node - 1]])
            result = FitRes(Status(Code.OK, ""), parameters, _WEIGHT, {})
            trained = Message(fitres_to_recorddict(result, keep_input=False), reply_to=asked)
            training_s = time.process_time() - started
            return trained

        # A message of its own for each client, as over the wire: the workflow shares one content among them.
        content = RecordDict(
            {name: ConfigRecord(dict(record)) for name, record in message.content.config_records.items()}
        )
        down = recorddict_to_proto(content).ByteSize()
        asked = Message(content, metadata=message.metadata)
        started = time.process_time()
        reply = secaggplus_mod(asked, self._contexts[node - 1], call_next)
        spent_s = time.process_time() - started - training_s
        if node == 1:
            self.first_s += spent_s
            self.down_bytes += down
            self.up_bytes += recorddict_to_proto(reply.content).ByteSize()
        return reply


def play(updates: list[NDArray[np.float32]]) -> dict[str, Any]:
    """One round. ``down_bytes`` counts the mean as float32, which Flower sends with its next round."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # messages carry them
    strategy, clients = _AllClients(len(updates)), _Clients(updates)
    state = RecordDict(
        {
            "config": ConfigRecord({"current_round": 1}),
            "parameters": parameters_to_arrayrecord(ndarrays_to_parameters([]), keep_input=False),
        }
    )
    context = LegacyContext(Context(1, 0, {}, state, {}), strategy=strategy)
    workflow = SecAggPlusWorkflow(num_shares=len(updates), reconstruction_threshold=len(updates) // 2 + 1)
    started = time.process_time()
    workflow(cast(Any, clients), context)
    spent_s = time.process_time() - started
    return {
        "total": strategy.mean.reshape(-1) * len(updates),
        "silo_cpu_s": clients.first_s,
        "server_cpu_s": spent_s - clients.all_s,
        "up_bytes": clients.up_bytes,
        "down_bytes": clients.down_bytes + 4 * len(updates[0]),
    }
