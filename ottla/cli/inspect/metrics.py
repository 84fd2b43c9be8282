"""`ottla metrics`: scrapes a broker's `/metrics` once, whole or filtered by name.

The address comes from the broker's setting `ottla.metrics.listen`, read over the wire, or from an option.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from ottla.cli.command import Command, Refused, UsageError
from ottla.cli.options import connect, output_of
from ottla.cli.output import write

SETTING = "ottla.metrics.listen"
TIMEOUT_S = 5.0
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="only metrics whose name begins with this")
    add("--from", dest="address", metavar="HOST:PORT", help="the port of ottla.metrics.listen (default: read from the broker)")
    add("--credentials", metavar="USER:PASSWORD", help="as in ottla.metrics.credentials")


def _run(args: argparse.Namespace) -> int:
    output = output_of(args)
    address = args.address or _metrics_address(args)
    text = scrape(address, args.credentials)
    if output.form == "table":
        lines = text.splitlines() if args.names else []
        write("".join(f"{line}\n" for line in lines if _is_wanted(line, args.names)) if args.names else text)
        return 0
    samples = [sample for sample in map(_sample, text.splitlines()) if sample and _is_wanted(sample["name"], args.names)]
    output.show("samples", samples, (("NAME", "name"), ("LABELS", "labels"), ("VALUE", "value")))
    return 0


def _metrics_address(args: argparse.Namespace) -> str:
    from ottla.base.errors import ApiError
    from ottla.client.blocking import admin

    with connect(args) as cluster:
        cluster.refresh([])
        broker_id, broker = min(cluster.brokers.items())
        found = admin.describe_configs(cluster, admin.BROKER_RESOURCE, [str(broker_id)])[str(broker_id)]
    if isinstance(found, ApiError):
        raise found
    listen = next((entry.value for entry in found if entry.name == SETTING), None)
    if not listen:
        raise Refused(f"broker {broker_id} exposes no metrics; start it with --set {SETTING}=127.0.0.1:9404", "NO_METRICS")
    host, _, port = str(listen).rpartition(":")
    return f"{broker.host if host in ('', '0.0.0.0', '[::]') else host}:{port}"


def scrape(address: str, credentials: str | None = None) -> str:
    """The text of `/metrics`. Raises `Refused` or `ConnectError`."""
    import base64
    import http.client

    from ottla.client.errors import ConnectError

    host, _, port = address.removeprefix("http://").removesuffix("/metrics").rstrip("/").rpartition(":")
    if not port.isdigit():
        raise UsageError(f"{address!r} is not HOST:PORT")
    headers = {} if credentials is None else {"Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()}
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics", headers=headers)
        response = connection.getresponse()
        body = response.read()
    except TimeoutError:
        raise ConnectError(f"{address} did not answer within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise ConnectError(f"no metrics at {address}: {(error.strerror or str(error)).lower()}") from None
    except http.client.HTTPException:
        raise ConnectError(f"{address} does not answer HTTP; is that the port of {SETTING}?") from None
    finally:
        connection.close()
    if response.status != 200:
        hint = "; add --credentials USER:PASSWORD" if response.status == 401 else ""
        raise Refused(f"{address} answers {response.status} {response.reason}{hint}", "HTTP_ERROR")
    return body.decode("utf-8", "replace")


def _is_wanted(line: str, names: list[str]) -> bool:
    """Whether the line (sample, help or type) belongs to one of the names."""
    name = line.split(" ", 3)[2] if line.startswith("# ") and line.count(" ") > 2 else line
    return not names or name.startswith(tuple(names))


def _sample(line: str) -> dict[str, Any] | None:
    match = _SAMPLE.match(line)
    if match is None:
        return None
    labels = {name: _unescape(value) for name, value in _LABEL.findall(match.group(2) or "")}
    return {"name": match.group(1), "labels": labels, "value": float(match.group(3))}


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found.group(1) == "n" else found.group(1), text)


COMMAND = Command("One scrape of a broker's metrics.", _arguments, _run, may_watch=True)
