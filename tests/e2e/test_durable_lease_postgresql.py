"""The lease on a real PostgreSQL: transactions that it fences off, beside renewals that go on meanwhile."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import update

from aggregator.database import open_database
from aggregator.lease import Held, Lease, LeaseLost
from aggregator.migrating import migrate
from aggregator.tables import leases
from tests.e2e.postgresql import binary_directory, running_cluster

BINARIES = binary_directory()
RENEWALS = 40


@pytest.mark.slow
@pytest.mark.skipif(BINARIES is None, reason="needs PostgreSQL's initdb (apt-get install postgresql)")
def test_a_renewal_breaks_no_transaction_and_a_takeover_breaks_every_one() -> None:
    """Under row locks more than half of the renewals here ended a transaction, and with it the process."""
    assert BINARIES is not None
    with running_cluster(BINARIES) as cluster:
        url = cluster.url(cluster.new_database())
        renewing, deciding = open_database(url), open_database(url)
        migrate(renewing)
        lease = Lease(renewing, "one:1", 60.0)
        assert isinstance(lease.take_or_find(), Held)

        def renew() -> None:
            for _ in range(RENEWALS):
                lease.renew()

        beside = threading.Thread(target=renew)
        beside.start()
        decided = 0
        while beside.is_alive() or not decided:
            with deciding.begin() as connection:
                lease.assert_held(connection)
            decided += 1
        beside.join()
        with renewing.begin() as connection:
            connection.execute(update(leases).values(expires_at=0))
        assert isinstance(Lease(renewing, "two:2", 60.0).take_or_find(), Held)
        with deciding.begin() as connection, pytest.raises(LeaseLost):
            lease.assert_held(connection)
        renewing.dispose()
        deciding.dispose()
