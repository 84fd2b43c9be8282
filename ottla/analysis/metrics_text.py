"""Reads the metrics that a broker exports over HTTP in Prometheus' text format, at the address in its setting `ottla.metrics.listen`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ApiError
from ottla.client.blocking.cluster import Cluster

if TYPE_CHECKING:
    from http.client import HTTPConnection

SETTING = "ottla.metrics.listen"
CERTIFICATE_SETTING = "ottla.metrics.ssl.certificate"
TIMEOUT_S = 5.0

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One value of a metric, with its labels: a line of the broker's answer."""

    name: str
    labels: dict[str, str]
    value: float


class MetricsRefused(Exception):
    """A broker exports no metrics, or refuses them. The message is one line; `name` is the error's name in a command's JSON output."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


def samples_in(text: str, prefix: str = "") -> Iterator[Sample]:
    """Yields the samples of a scrape whose names begin with `prefix`, with unescaped labels. To save time it parses only the lines from the
    first to the last such sample.
    """
    text = f"\n{text}"
    first, last = text.find(f"\n{prefix}"), text.rfind(f"\n{prefix}")
    for line in text[first : text.find("\n", last + 1)].split("\n") if first >= 0 else ():
        match = _SAMPLE.match(line) if line.startswith(prefix) else None
        if match is not None:
            labels = {name: re.sub(r"\\(.)", _unescaped, value) for name, value in _LABEL.findall(match[2] or "")}
            yield Sample(match[1], labels, float(match[3]))


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def metrics_address(cluster: Cluster, broker_id: int | None = None) -> str:
    """Asks a broker (None: the broker with the lowest id) for the address of its metrics. Raises `MetricsRefused` if the broker exports no
    metrics, or if its setting has port 0: the broker then chose a free port, which only its log contains. Raises `ApiError` if the broker
    refuses to show its settings."""
    from ottla.client.core import admin

    cluster.refresh([])
    broker_id = min(cluster.metadata.brokers) if broker_id is None else broker_id
    broker = cluster.metadata.brokers[broker_id]
    found = admin.describe_configs(cluster, admin.BROKER_RESOURCE, [str(broker_id)])[str(broker_id)]
    if isinstance(found, ApiError):
        raise found
    settings = {entry.name: entry.value for entry in found}
    listen = settings.get(SETTING)
    if not listen:
        raise MetricsRefused(f"broker {broker_id} exposes no metrics; start it with --set {SETTING}=127.0.0.1:9404", "NO_METRICS")
    host, _, port = str(listen).rpartition(":")
    if port == "0":
        advice = "name it by --from; the broker's log has it: 'metrics and health on ...'"
        raise MetricsRefused(f"broker {broker_id} has chosen a free port for its metrics ({SETTING}={listen}): {advice}", "NO_METRICS")
    scheme = "https://" if settings.get(CERTIFICATE_SETTING) else ""
    return f"{scheme}{broker.host if host in ('', '0.0.0.0', '[::]') else host}:{port}"


def scrape(
    address: str, credentials: str | None = None, *, token_file: str | None = None, ca_file: str | None = None, path: str = "/metrics"
) -> str:
    """Returns the text at a path of a broker's HTTP port. Uses TLS if the address begins with `https://` or `ca_file` is given. Raises
    `ValueError` for a bad address or file, `ConnectError` without an answer in HTTP, `MetricsRefused` for an HTTP status other than 200.
    """
    import http.client
    import ssl

    from ottla.client.errors import ConnectError

    connection = _connection(address, ca_file)
    try:
        connection.request("GET", path, headers=_authorization(credentials, token_file))
        response = connection.getresponse()
        body = response.read()
    except TimeoutError:
        raise ConnectError(f"{address} did not answer within {TIMEOUT_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise ConnectError(f"the certificate of {address} is not trusted ({error.verify_message}); name its authority with --ca") from None
    except OSError as error:
        raise ConnectError(f"no metrics at {address}: {(error.strerror or str(error)).lower()}") from None
    except http.client.HTTPException:
        raise ConnectError(f"{address} does not answer HTTP; is that the port of {SETTING}, and without TLS?") from None
    finally:
        connection.close()
    if response.status != 200:
        hint = "; add --credentials USER:PASSWORD or --token-file FILE" if response.status == 401 else ""
        raise MetricsRefused(f"{address} answers {response.status} {response.reason}{hint}", "HTTP_ERROR")
    return body.decode("utf-8", "replace")


def _connection(address: str, ca_file: str | None) -> HTTPConnection:
    import http.client
    import ssl

    is_encrypted = address.startswith("https://") or ca_file is not None
    bare = address.removeprefix("https://").removeprefix("http://").removesuffix("/metrics").rstrip("/")
    host, _, port = bare.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"{address!r} is not HOST:PORT")
    if not is_encrypted:
        return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(f"{ca_file}: {error.strerror or 'no certificates'}") from None
    return http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S, context=context)


def _authorization(credentials: str | None, token_file: str | None) -> dict[str, str]:
    import base64

    if token_file is not None:
        try:
            with open(token_file, encoding="latin-1") as file:
                return {"Authorization": f"Bearer {file.read().strip()}"}
        except OSError as error:
            raise ValueError(f"{token_file}: {error.strerror}") from None
    return {} if credentials is None else {"Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()}
