"""`ottla txn prepared` and `ottla txn finish`: transactions of two-phase commit (KIP-939), which an external coordinator ends.

Such a transaction has no timeout. Only the external coordinator knows whether it is prepared, so `prepared` lists all open transactions
without a timeout. `finish` ends one as its owner would after a restart, and fences the previous producer. `--commit` and `--abort` choose
the outcome. `--prepared-state` is the state that the external coordinator stored: the open transaction is committed if it is the stored
one, else aborted.
"""

from __future__ import annotations

from ottla.cli.command import Args, Refused, UsageError, command, flag, one_of, option
from ottla.cli.moments import now_ms
from ottla.cli.options import YES, confirm
from ottla.cli.render.ottla import Output
from ottla.cli.render.rows import Row, column, joined, json_only
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import transaction_admin


class PreparedRow(Row, titles=joined):
    """An open transaction without a timeout."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    age_ms: int | None
    client_host: str = column("Client")
    partitions: list[str] = column("TopicPartitions")
    state: str = json_only()
    timeout_ms: int = json_only()
    start_ms: int = json_only()
    client_id: str = json_only()


@command("txn prepared", "Transactions that an external coordinator must end (two-phase commit).", may_watch=True)
def _prepared(args: Args, cluster: Cluster, output: Output) -> None:
    found = transaction_admin.list_prepared(cluster)
    rows = []
    for one in found:
        age_ms = max(0, now_ms() - one.start_ms) if one.start_ms >= 0 else None
        rows.append(PreparedRow(**{**one._asdict(), "partitions": list(map(str, one.partitions)), "age_ms": age_ms}))
    output.rows("transactions", PreparedRow, rows)


@command(
    "txn finish",
    "Commit or abort a prepared transaction.",
    option("name", metavar="ID", help="the transactional id"),
    *one_of(
        flag("--commit", help="commit the open transaction"),
        flag("--abort", help="abort the open transaction"),
        option("--prepared-state", metavar="PRODUCER_ID:EPOCH", help="commit if this is the open transaction, else abort"),
        is_needed=True,
    ),
    YES,
)
def _finish(args: Args, cluster: Cluster, output: Output) -> None:
    name = args.name
    wanted = _parse_state(args.prepared_state) if args.prepared_state is not None else None
    found = transaction_admin.describe_transaction(cluster, name)
    if not found.is_open:
        raise Refused(f"nothing is open for {name!r}: it is {found.state}", "INVALID_TXN_STATE")
    if not found.is_two_phase:
        raise Refused(f"{name!r} has a timeout, so it is not of two-phase commit; see `ottla txn abort`", "INVALID_TXN_STATE")
    confirm(args, f"{'Commit' if args.commit else 'Abort' if args.abort else 'Finish'} the open transaction of {name!r}?")
    ended = transaction_admin.finish_prepared(
        cluster, name, lambda producer_id, epoch: args.commit or (wanted is not None and (producer_id, epoch) == wanted)
    )
    if ended is None:
        raise Refused(f"the transaction of {name!r} has just been ended by another client", "INVALID_TXN_STATE")
    producer_id, epoch, is_commit = ended
    outcome = "committed" if is_commit else "aborted"
    what = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "outcome": outcome}
    output.done(f"The transaction of {name} (producer {producer_id} epoch {epoch}) is {outcome}.", what)


def _parse_state(text: str) -> tuple[int, int]:
    producer_id, colon, epoch = text.partition(":")
    if not (colon and producer_id.isdecimal() and epoch.isdecimal()):
        raise UsageError(f"--prepared-state {text!r} is not PRODUCER_ID:EPOCH")
    return int(producer_id), int(epoch)
