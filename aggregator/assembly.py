"""Putting a server together from its settings: keys, charter, database, directories, service, application."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx
from fastapi import FastAPI

from aggregator.access import AGGREGATOR, SHARE_SERVER
from aggregator.attack_results import AttackResults
from aggregator.audit_log import AuditLog
from aggregator.charter_change import CharterChange
from aggregator.held_charter import HeldCharter, hold_charter
from aggregator.job_answers import JobAnswers
from aggregator.job_keys import JobKeys
from aggregator.job_rows import keep_charter
from aggregator.lease import Lease
from aggregator.maintenance import Maintenance
from aggregator.model_intake import Models
from aggregator.operators.admitting import admit_people
from aggregator.operators.web import add_people_routes
from aggregator.orphan_rules import aggregator_collector
from aggregator.orphans import Collector
from aggregator.peers import HttpShareServers, ShareServers, fetch_charter
from aggregator.presence import Bell, Presence
from aggregator.readiness import Readiness
from aggregator.resuming import left_open
from aggregator.retention import Retention
from aggregator.round_flow import RoundFlow
from aggregator.run_loop import RunLoop
from aggregator.schemes.additive import AdditiveFlow
from aggregator.schemes.flow import SchemeFlow
from aggregator.schemes.he import HeFlow
from aggregator.schemes.pairwise import PairwiseFlow
from aggregator.schemes.threshold import ThresholdFlow
from aggregator.server_memory import ServerMemory
from aggregator.settings import AggregatorSettings, ServerSettings, ShareServerSettings
from aggregator.share_server.service import ShareServer
from aggregator.state import AggregatorState
from aggregator.store import Store
from aggregator.stores import Stores
from aggregator.submissions import Submissions
from aggregator.succession import Succession
from aggregator.uploads import Uploads
from aggregator.web import aggregator_app
from aggregator.web_attacks import add_attack_routes
from aggregator.web_guard import assert_all_guarded
from aggregator.web_keys import add_key_routes
from aggregator.web_logs import add_log_routes
from aggregator.web_readiness import add_readiness_routes
from aggregator.web_share_server import share_server_app
from aggregator.web_upkeep import add_upkeep_routes
from aggregator.witnesses import Witnesses
from policies.audit_sinks.settings import sinks_or_default
from privacy.errors import ConfigurationError
from privacy.keystore import Identity, load_identity, read_file
from privacy.plan import SchemeName
from privacy.roster import Role
from privacy.secagg.he.parameters import ONE_KEY_SCHEMES, assert_available
from privacy.secagg.threshold.interpreter import python_of
from privacy.secagg.threshold.parameters import JOINT_KEY_SCHEMES
from privacy.secagg.threshold.worker import assert_available as assert_openfhe


@dataclass(frozen=True)
class Aggregator:
    """A whole aggregator, not listening yet."""

    identity: Identity
    app: FastAPI
    state: AggregatorState
    loop: RunLoop
    stores: Stores
    collector: Collector


@dataclass(frozen=True)
class AssembledShareServer:
    """A whole share server, not listening yet."""

    identity: Identity
    app: FastAPI
    store: Store
    charters: Succession
    stores: Stores


def assemble_aggregator(
    settings: AggregatorSettings,
    servers: ShareServers | None = None,
    issuer: httpx.AsyncBaseTransport | None = None,
    lease: Lease | None = None,
) -> Aggregator:
    """Build an aggregator, which decides only while it holds ``lease``, where there is one.

    ``servers`` replaces its HTTPS calls to the charter's share servers, ``issuer`` the network to the issuer.

    Raises:
        ConfigurationError: the state directory, the charter or a key is not as it must be; or what the
            charter's scheme needs is not installed.
        LedgerDamaged: the log does not verify.
    """
    identity, held = _enrolled(settings, "aggregator")
    scheme = held.policy.model.spec.require.secagg.scheme
    if scheme in ONE_KEY_SCHEMES:
        assert_available()
    openfhe = python_of(settings.threshold_he)
    if settings.threshold_he is not None or scheme in JOINT_KEY_SCHEMES:
        assert_openfhe(openfhe)
    store = _store(settings, identity, held, lease)
    with store.write() as transaction:
        keep_charter(transaction, held.charter.digest, held.endorsed)
    bell = Bell()
    charters = Succession(identity, held)
    stores = Stores(settings)
    state = AggregatorState(
        identity=identity,
        charters=charters,
        store=store,
        models=stores.open("models"),
        parts=stores.open("parts"),
        sums=stores.open("sums"),
        optimizers=ServerMemory(stores.open("optimizers")),
        witnesses=_witnesses(store, charters),
        bell=bell,
        presence=Presence(settings.presence_s, bell, time.monotonic),
        readiness=Readiness(store, settings.approval_wait_s, time.time),
        maintenance=Maintenance(store, bell, time.time),
    )
    with store.read() as view:
        state.coming_back.update(one.plan.context for one in left_open(view, state.me))
    models = Models(state, settings.model_bytes_max, settings.storage_bytes_max)
    submissions = Submissions(state)
    share_servers = servers or _share_servers(identity, held)
    schemes: dict[SchemeName, SchemeFlow] = {
        "additive": AdditiveFlow(state, share_servers),
        "pairwise": PairwiseFlow(state, settings.storage_bytes_max),
        "bfv": HeFlow(state, settings.storage_bytes_max),
        "ckks": HeFlow(state, settings.storage_bytes_max),
        "threshold_bfv": ThresholdFlow(state, settings.storage_bytes_max, openfhe),
        "threshold_ckks": ThresholdFlow(state, settings.storage_bytes_max, openfhe),
    }
    flow = RoundFlow(state, schemes, settings.aborts_max)
    loop = RunLoop(state, flow, settings.grace_s, settings.aborts_max, settings.database_wait_s)
    people = admit_people(settings, held.charter, store, identity, issuer)
    app = aggregator_app(
        state, models, submissions, Uploads(state, schemes), CharterChange(state, share_servers), people
    )
    add_people_routes(app, people, held.charter.federation, settings.oidc)
    add_log_routes(app, store, state.witnesses, between_rounds=lambda: state.current is None)
    add_key_routes(app, JobKeys(state))
    add_readiness_routes(app, JobAnswers(state))
    add_attack_routes(app, AttackResults(state))
    collector = aggregator_collector(settings, store, stores)
    add_upkeep_routes(app, state.maintenance, Retention(store, state.models, time.time), collector)
    assert_all_guarded(app, AGGREGATOR)
    return Aggregator(identity, app, state, loop, stores, collector)


def assemble_share_server(
    settings: ShareServerSettings, issuer: httpx.AsyncBaseTransport | None = None
) -> AssembledShareServer:
    """Build a share server; ``issuer`` replaces the network to the issuer of ``oidc:``.

    Raises:
        ConfigurationError: the state directory, the charter or a key is not as it must be.
        LedgerDamaged: the log does not verify.
    """
    identity, held = _enrolled(settings, "share_server")
    store = _store(settings, identity, held)
    with store.write() as transaction:
        transaction.record("started", party=identity.pin.party, charter=held.charter.digest)
    charters = Succession(identity, held)
    stores = Stores(settings)
    server = ShareServer(
        identity,
        charters,
        store,
        stores.open("parts"),
        stores.open("opening"),
        settings.storage_bytes_max,
    )
    people = admit_people(settings, held.charter, store, identity, issuer)
    app = share_server_app(server, store, people, _witnesses(store, charters))
    add_people_routes(app, people, held.charter.federation, settings.oidc)
    assert_all_guarded(app, SHARE_SERVER)
    return AssembledShareServer(identity, app, store, charters, stores)


def _enrolled(settings: ServerSettings, role: Role) -> tuple[Identity, HeldCharter]:
    identity = load_identity(settings.state_dir)
    if identity.pin.role != role:
        raise ConfigurationError(
            f"{settings.state_dir}: expected the state of a party enrolled as {role}, got {identity.pin.role}"
        )
    offered = None
    if settings.charter is not None:
        offered = read_file(settings.charter)
    elif settings.charter_url is not None:
        offered = fetch_charter(settings.charter_url, identity.client_context)
    return identity, hold_charter(identity, role, offered)


def _store(
    settings: ServerSettings, identity: Identity, held: HeldCharter, lease: Lease | None = None
) -> Store:
    log = AuditLog(identity.pin.federation, identity.pin.party, identity.signing)
    sinks = sinks_or_default(settings.audit_sinks, settings.state_dir, settings.state_dir)
    may_decide = None if lease is None else lease.assert_held
    store = Store(settings.database, log, settings.state_dir, sinks, settings.audit_wait_s, may_decide)
    store.sinks.assert_enough([held.policy])
    return store


def _witnesses(store: Store, charters: Succession) -> Witnesses:
    witnesses = Witnesses(
        store.log, lambda: charters.charter, lambda: charters.policy.model.spec.witnesses_needed
    )
    with store.read() as view:
        witnesses.load(view.connection)
    return witnesses


def _share_servers(identity: Identity, held: HeldCharter) -> HttpShareServers:
    urls = {server: held.charter.member(server).url for server in held.charter.share_servers}
    return HttpShareServers(urls, identity.client_context)
