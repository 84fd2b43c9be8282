"""`ottla metrics`: scrapes a broker's `/metrics` once, and prints all metrics or those whose name begins with a given text.

`--from` names the address. Without it the address is the setting `ottla.metrics.listen` of the broker with the lowest id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.cli.command import Args, Refused, UsageError, command, granted, option
from ottla.cli.options import connect
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row

if TYPE_CHECKING:
    from http.client import HTTPConnection

SETTING = "ottla.metrics.listen"
CERTIFICATE_SETTING = "ottla.metrics.ssl.certificate"
TIMEOUT_S = 5.0
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class MetricRow(Row):
    name: str
    labels: dict[str, str]
    value: float


@command(
    "metrics",
    "One scrape of a broker's metrics.",
    option("names", nargs="*", metavar="NAME", help="only metrics whose name begins with this"),
    option("--from", dest="address", metavar="HOST:PORT", help="the port of ottla.metrics.listen (default: read from the broker)"),
    option("--credentials", metavar="USER:PASSWORD", help="as in ottla.metrics.credentials"),
    option("--token-file", metavar="FILE", help="as ottla.metrics.token.file"),
    option("--ca", metavar="FILE", help="PEM certificates to trust where the port speaks TLS (default: the system's)"),
    may_watch=True,
)
def _run(args: Args, output: Output) -> None:
    address = args.address or metrics_address(args)
    text = scrape(address, args.credentials, token_file=args.token_file, ca_file=args.ca)
    if output.form == "table":
        lines = text.splitlines() if args.names else []
        write("".join(f"{line}\n" for line in lines if _is_wanted(line, args.names)) if args.names else text)
        return
    samples = [sample for sample in map(_sample, text.splitlines()) if sample and _is_wanted(sample.name, args.names)]
    output.rows("samples", MetricRow, samples)


def metrics_address(args: Args) -> str:
    """Asks the broker with the lowest id for the address of its metrics. Raises `Refused` if it has none, or a port chosen at its start."""
    from ottla.client.core import admin

    with connect(args) as cluster:
        cluster.refresh([])
        broker_id, broker = min(cluster.metadata.brokers.items())
        found = admin.describe_configs(cluster, admin.BROKER_RESOURCE, [str(broker_id)])[str(broker_id)]
    settings = {entry.name: entry.value for entry in granted(found)}
    listen = settings.get(SETTING)
    if not listen:
        raise Refused(f"broker {broker_id} exposes no metrics; start it with --set {SETTING}=127.0.0.1:9404", "NO_METRICS")
    host, _, port = str(listen).rpartition(":")
    if port == "0":
        advice = "name it by --from; the broker's log has it: 'metrics and health on ...'"
        raise Refused(f"broker {broker_id} has chosen a free port for its metrics ({SETTING}={listen}): {advice}", "NO_METRICS")
    scheme = "https://" if settings.get(CERTIFICATE_SETTING) else ""
    return f"{scheme}{broker.host if host in ('', '0.0.0.0', '[::]') else host}:{port}"


def scrape(address: str, credentials: str | None = None, *, token_file: str | None = None, ca_file: str | None = None) -> str:
    """Returns the text of `/metrics`. Uses TLS if the address begins with `https://` or `ca_file` is given. Raises `UsageError` for a bad
    address or file, `ConnectError` without a connection, `Refused` for an HTTP status other than 200."""
    import http.client
    import ssl

    from ottla.client.errors import ConnectError

    connection = _connection(address, ca_file)
    try:
        connection.request("GET", "/metrics", headers=_authorization(credentials, token_file))
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
        raise Refused(f"{address} answers {response.status} {response.reason}{hint}", "HTTP_ERROR")
    return body.decode("utf-8", "replace")


def _connection(address: str, ca_file: str | None) -> HTTPConnection:
    import http.client
    import ssl

    is_encrypted = address.startswith("https://") or ca_file is not None
    bare = address.removeprefix("https://").removeprefix("http://").removesuffix("/metrics").rstrip("/")
    host, _, port = bare.rpartition(":")
    if not port.isdigit():
        raise UsageError(f"{address!r} is not HOST:PORT")
    if not is_encrypted:
        return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise UsageError(f"{ca_file}: {error.strerror or 'no certificates'}") from None
    return http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S, context=context)


def _authorization(credentials: str | None, token_file: str | None) -> dict[str, str]:
    import base64

    if token_file is not None:
        try:
            with open(token_file, encoding="latin-1") as file:
                return {"Authorization": f"Bearer {file.read().strip()}"}
        except OSError as error:
            raise UsageError(f"{token_file}: {error.strerror}") from None
    return {} if credentials is None else {"Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()}


def _is_wanted(line: str, names: list[str]) -> bool:
    """Returns whether the metric of a line (sample, HELP or TYPE) begins with one of `names`. True if there are no names."""
    name = line.split(" ", 3)[2] if line.startswith("# ") and line.count(" ") > 2 else line
    return not names or name.startswith(tuple(names))


def _sample(line: str) -> MetricRow | None:
    match = _SAMPLE.match(line)
    if match is None:
        return None
    labels = {
        name: re.sub(r"\\(.)", lambda found: "\n" if found.group(1) == "n" else found.group(1), value)
        for name, value in _LABEL.findall(match.group(2) or "")
    }
    return MetricRow(match.group(1), labels, float(match.group(3)))
