"""A server whose routes and access table disagree does not start."""

from __future__ import annotations

import pytest
from starlette.responses import Response

from aggregator.access import AGGREGATOR, REGISTRAR
from aggregator.web_common import bare_app
from aggregator.web_guard import AggregatorRoute, RegistrarRoute, assert_all_guarded
from privacy.errors import ConfigurationError


async def answer() -> Response:
    return Response()


def test_a_route_without_a_row_does_not_start() -> None:
    app = bare_app("test", AggregatorRoute)
    with pytest.raises(ConfigurationError, match=r"route GET /v1/backdoor: expected a row"):
        app.get("/v1/backdoor")(answer)
    with pytest.raises(ConfigurationError, match=r"route DELETE /v1/charter: expected a row"):
        app.delete("/v1/charter")(answer)


def test_a_way_in_beside_the_routes_does_not_start() -> None:
    app = bare_app("test", RegistrarRoute)
    app.get("/v1/charter")(answer)
    app.post("/v1/enroll")(answer)
    app.post("/v1/renew")(answer)
    assert_all_guarded(app, REGISTRAR)
    app.mount("/static", answer)
    with pytest.raises(ConfigurationError, match=r"without a row: Mount\(path='/static'"):
        assert_all_guarded(app, REGISTRAR)


def test_a_row_without_a_route_does_not_start() -> None:
    app = bare_app("test", AggregatorRoute)
    with pytest.raises(ConfigurationError, match=r"without a route: .*GET /livez, GET /readyz"):
        assert_all_guarded(app, AGGREGATOR)


def test_a_route_judged_by_another_table_does_not_start() -> None:
    app = bare_app("test", AggregatorRoute)
    app.get("/v1/charter")(answer)
    with pytest.raises(ConfigurationError, match="without a route: GET /v1/charter, POST /v1/enroll"):
        assert_all_guarded(app, REGISTRAR)
