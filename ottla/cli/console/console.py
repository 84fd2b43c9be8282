"""Implements `ottla console`: serves pages for a browser that show any Kafka cluster and change it. The code is in `ottla/console`, with
its own libraries.
"""

from __future__ import annotations

import os

from ottla.adapters.console_process import REGISTRY
from ottla.cli.command import Args, Refused, UsageError, command, flag, headed, hidden, option
from ottla.cli.optional import library, part
from ottla.cli.options import DEFAULT_TIMEOUT_MS, properties_of
from ottla.client.addresses import DEFAULT_BOOTSTRAP

INSTALL = "'starlette>=1.0' 'uvicorn>=0.40' 'jinja2>=3.1'"
"""The packages of the extra `ottla[console]`, for pip. Ottla is in no package index."""


@command(
    "console",
    "Pages in a browser: look at a cluster, understand it, act.",
    option("--port", type=int, default=8080, metavar="PORT", help="port to listen on, 0 for any free one (default 8080)"),
    option("--host", default="127.0.0.1", metavar="HOST", help="address to listen on (default 127.0.0.1)"),
    flag("--read-only", help="hide and refuse all actions"),
    flag("--login", help="users log in with the cluster's SASL names and passwords; needed unless the address is loopback"),
    option("--metrics", action="append", default=[], metavar="HOST:PORT",
           help="the HTTP port of a broker, may be repeated (default: ottla.metrics.listen of every broker)"),
    option("--metrics-credentials", metavar="USER:PASSWORD", help="as in ottla.metrics.credentials"),
    *headed(
        "schemas (extra ottla[schemas])",
        option("--registry", metavar="URL", help="a schema registry: records with its header are shown as JSON, and values are written"),
        option("--schema", action="append", default=[], metavar="TOPIC=FILE", help="of a topic's values, as in ottla consume"),
        option("--message", action="append", default=[], metavar="TOPIC=NAME", help="the Protobuf message of a topic's values"),
    ),
    hidden("--with-parent", action="store_true"),
    has_output=False,
)
def _console(args: Args) -> int:
    for name in ("starlette", "uvicorn", "jinja2"):
        library(name, INSTALL)
    from ottla.console.desk import LOOPBACK, Settings
    from ottla.console.schemas import Schemas
    from ottla.console.server import ConsoleRefused, serve

    if not 0 <= args.port <= 65_535:
        raise UsageError("--port is a number from 0 to 65535")
    properties = {"bootstrap.servers": DEFAULT_BOOTSTRAP, **properties_of(args)}
    is_sasl = properties.get("security.protocol", "").upper().startswith("SASL_")
    if args.login and not is_sasl:
        raise UsageError("--login needs a cluster with SASL: -X security.protocol=SASL_SSL (or SASL_PLAINTEXT) -X sasl.mechanism=...")
    if args.host not in LOOPBACK and not args.login:
        raise UsageError(f"{args.host} can be reached from other machines, so users have to log in: add --login, or listen on 127.0.0.1")
    wait_ms = properties.get("request.timeout.ms") or DEFAULT_TIMEOUT_MS
    args.registry = args.registry or os.environ.get(REGISTRY)
    schemas = part("page schemas").make_page_schemas(args) if args.registry or args.schema or args.message else Schemas()
    settings = Settings(
        properties, max(0.1, float(wait_ms) / 1000), args.host, args.port, args.read_only, args.login,
        args.metrics, args.metrics_credentials, schemas,
    )  # fmt: skip
    try:
        serve(settings, is_with_parent=args.with_parent)
    except ConsoleRefused as error:
        raise Refused(str(error)) from None
    return 0
