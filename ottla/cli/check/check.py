"""`ottla check eos`: tests the promises of exactly-once on any Kafka-compatible broker, as a black box, with a stock client.

Each check has one line with its verdict: pass, fail, not supported, or unclear if the check could not run (a broker is down, a topic was
refused). Besides the general exit codes, 1 means a failed or unclear check, 2 a missing stock client. The command creates topics, groups
and transactional ids named `ottla-check-eos-...` and deletes the topics at its end.
"""

from __future__ import annotations

from ottla.cli.command import Args, UsageError, command, flag, option
from ottla.cli.options import properties_of
from ottla.cli.render.ottla import Output, Row
from ottla.client.addresses import DEFAULT_BOOTSTRAP
from ottla.client.blocking.cluster import Cluster


class CheckRow(Row):
    check: str
    verdict: str
    seconds: float
    detail: str


class PromiseRow(Row):
    """A check in `--list`, with the promise that it tests."""

    check: str
    promise: str


@command(
    "check eos",
    "Check the promises of exactly-once.",
    option("--only", action="append", metavar="CHECK", help="only this check; repeatable"),
    option(
        "--replication-factor", "-r", type=int, default=-1, metavar="N", help="replication factor of the topics (default: the broker's)"
    ),
    flag("--list", dest="is_list", help="list the checks and run none"),
)
def _eos(args: Args, cluster: Cluster, output: Output) -> int:
    from ottla.cli.check.eos.checks import CHECKS, run_checks
    from ottla.cli.check.eos.world import FAIL, UNCLEAR, World, settings_of

    if args.replication_factor == 0 or args.replication_factor < -1:
        raise UsageError("--replication-factor must be 1 or more")
    if args.is_list:
        output.rows("checks", PromiseRow, [PromiseRow(one.name, one.promise) for one in CHECKS])
        return 0
    known = {one.name: one for one in CHECKS}
    for name in args.only or ():
        if name not in known:
            raise UsageError(f"no check {name!r}; there are: {', '.join(known)}")
    checks = tuple(one for one in CHECKS if not args.only or one.name in args.only)
    properties = {"bootstrap.servers": DEFAULT_BOOTSTRAP, **properties_of(args)}
    world = World(settings_of(properties), cluster, replication_factor=args.replication_factor)
    world.reach()
    rows: dict[str, CheckRow] = {}
    try:
        for found in run_checks(world, checks):
            output.detail(f"{found.name}: {found.verdict}")
            rows[found.name] = CheckRow(found.name, found.verdict, found.seconds, found.detail)
    finally:
        world.tidy_up()
    is_whole = all(row.verdict not in (FAIL, UNCLEAR) for row in rows.values())
    output.rows("checks", CheckRow, [rows[one.name] for one in checks], extra={"broker": world.bootstrap, "passed": is_whole})
    return 0 if is_whole else 1
