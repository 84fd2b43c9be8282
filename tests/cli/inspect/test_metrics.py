"""One scrape, found through the broker or by its address; failures are one line."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator

import pytest

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla

PAGE = b'# HELP a_total Things.\n# TYPE a_total counter\na_total{x="1",y="q\\"\\n"} 5\na_total 6\n# HELP b Others.\n# TYPE b gauge\nb NaN\n'


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_allowed = self.headers.get("Authorization") in (None, "Basic dTpw")
        self.send_response(200 if is_allowed else 401)
        self.end_headers()
        self.wfile.write(PAGE if is_allowed else b"")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_scrape_as_it_is(offline: Ottla, page: str) -> None:
    assert offline("metrics", "--from", page).out.encode() == PAGE
    assert offline("metrics", "--from", f"http://{page}/metrics").out.encode() == PAGE


def test_some_names(offline: Ottla, page: str) -> None:
    assert offline("metrics", "--from", page, "b").out == "# HELP b Others.\n# TYPE b gauge\nb NaN\n"
    found = offline("metrics", "--from", page, "a", "-o", "json").json()["samples"]
    assert found == [{"name": "a_total", "labels": {"x": "1", "y": 'q"\n'}, "value": 5.0}, {"name": "a_total", "labels": {}, "value": 6.0}]


def test_credentials(offline: Ottla, page: str) -> None:
    assert offline("metrics", "--from", page, "--credentials", "u:p").code == 0
    refused = offline("metrics", "--from", page, "--credentials", "u:wrong")
    assert refused.code == 1
    assert "401" in refused.err
    assert "--credentials" in refused.err


def test_a_broker_without_metrics(ottla: Ottla) -> None:
    result = ottla("metrics")
    assert result.code == 1
    assert "exposes no metrics" in result.err


def test_a_port_that_the_broker_has_chosen_is_in_its_log(offline: Ottla) -> None:
    with Broker(settings={"ottla.metrics.listen": "127.0.0.1:0"}) as broker:
        refused = offline("metrics", "-b", broker.direct_server)
        assert refused.code == 1 and refused.err.count("\n") == 1 and "name it by --from; the broker's log has it" in refused.err
        named = re.search(r"metrics and health on http://(\S+:\d+)", broker.log)
        assert named is not None and offline("metrics", "--from", named[1]).code == 0


def test_what_is_no_address(offline: Ottla) -> None:
    assert offline("metrics", "--from", "nowhere").code == 2
    away = offline("metrics", "--from", "127.0.0.1:1")
    assert (away.code, away.err.count("\n")) == (3, 1)


def test_the_brokers_own_port_is_no_web_server(offline: Ottla, broker: Broker) -> None:
    result = offline("metrics", "--from", broker.direct_server)
    assert result.code == 3
    assert result.err.count("\n") == 1
