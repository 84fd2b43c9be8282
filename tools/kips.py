"""The table of KIPs: Kafka's improvement proposals that the code cites as `KIP-NNN`, and where.

A citation without a line in `ABOUT` is an error, and so is a line that nothing cites.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CITATION = re.compile(r"\bKIP-(\d+)")
MODULES_MAX = 3
"""Modules of one folder that are listed each by its name; of more, only the folder is."""


class About(NamedTuple):
    """What a KIP is for, and what is different here; empty if nothing is."""

    purpose: str
    difference: str = ""


NO_QUORUM = "refused: the metadata store replaces the quorum of controllers"
NO_TIERS = "answered as by a broker without tiered storage"
ABOUT: dict[int, About] = {
    48: About("Delegation tokens"),
    73: About("Quotas of replication"),
    98: About("Exactly once: idempotent producers and transactions"),
    101: About("Followers truncate by leader epochs instead of the high watermark"),
    110: About("Compression by zstd"),
    113: About("Replicas move between the log directories of a broker"),
    152: About("Failed SASL logins are answered with a reason"),
    183: About("Elections of the preferred leader by an admin client"),
    204: About("Records are deleted by an admin client"),
    207: About("Offsets of ListOffsets stay monotonic while the leader changes"),
    211: About("When committed offsets of a group expire"),
    219: About("A throttled answer is sent at once, with the time to wait"),
    226: About("Broker settings change while the broker runs"),
    227: About("Fetch sessions: a Fetch names only what changed"),
    255: About("Logins by OAUTHBEARER"),
    279: About("Logs do not diverge after fast changes of the leader"),
    290: About("ACLs for prefixes of names"),
    320: About("Fetchers detect truncated logs by leader epochs"),
    339: About("IncrementalAlterConfigs"),
    342: About("SASL extensions of OAUTHBEARER"),
    345: About("Static members of consumer groups"),
    354: About("A longest time before records are compacted"),
    360: About("Idempotent producers recover from lost state"),
    368: About("SASL sessions end, and clients log in again before that"),
    371: About("Rules that map the subject of a certificate to a principal"),
    373: About("Delegation tokens for other users"),
    380: About("Requests of earlier lives of a broker are fenced by its epoch"),
    392: About("Consumers fetch from the closest replica"),
    394: About("A new member of a classic group gets its id before it joins"),
    405: About("Tiered storage", "`remote.storage.enable=true` is refused; the offsets are " + NO_TIERS),
    412: About("Log levels change while the broker runs"),
    429: About("Cooperative rebalances of classic groups"),
    430: About("Answers name the operations that the caller is permitted"),
    447: About("Transactions with one producer for many input partitions"),
    455: About("Reassignments of replicas by an admin client"),
    460: About("ElectLeaders, with unclean elections"),
    464: About("CreateTopics with the broker's defaults"),
    467: About("Errors of Produce name the records at fault"),
    480: About("Records without a key stay with one partition for a while"),
    496: About("OffsetDelete"),
    497: About("Leaders change the ISR by a request to the controller"),
    511: About("Clients send the name and version of their software"),
    516: About("Topic ids"),
    518: About("ListGroups by state"),
    525: About("CreateTopics answers with the topic's settings"),
    534: About("Tombstones and transaction markers are kept for `delete.retention.ms`"),
    546: About("Client quotas by an admin client"),
    554: About("SCRAM users by an admin client"),
    559: About("JoinGroup and SyncGroup name the protocol"),
    569: About("DescribeConfigs has types and documentation"),
    584: About("Versions of features"),
    588: About("Producers recover from a transaction that timed out"),
    590: About("Brokers forward changes to the controller"),
    595: About("Raft for the metadata", "only a Fetch that reports where logs diverge; the metadata is in a store"),
    599: About("Quotas of created and deleted topics and partitions"),
    612: About("Limits of new connections"),
    664: About("Hanging transactions are found and aborted"),
    679: About("Producers are idempotent by default"),
    699: About("FindCoordinator for several keys"),
    709: About("OffsetFetch for several groups"),
    714: About("Metrics of clients, by subscription"),
    734: About("ListOffsets of the record with the largest timestamp"),
    768: About("OAUTHBEARER with an identity provider (OIDC)"),
    778: About("UpdateFeatures with upgrades and downgrades of several kinds"),
    784: About("DescribeLogDirs has an error of the whole request"),
    800: About("JoinGroup and LeaveGroup have a reason"),
    814: About("A returning static leader skips the assignment"),
    827: About("DescribeLogDirs has the total and usable bytes of the disk"),
    836: About("DescribeQuorum has the progress of its voters", "answered about the metadata store"),
    848: About("The new protocol of consumer groups: the broker assigns"),
    853: About("Changes of the quorum's voters", NO_QUORUM),
    858: About("Failed log directories in KRaft", "only the message is known; brokers report failed directories in the metadata store"),
    860: About("A reassignment can forbid a change of the replication factor"),
    890: About("Brokers defend transactions against late requests"),
    903: About("A restarted replica with an old epoch does not join the ISR"),
    919: About("Admin clients talk to controllers", "there is no listener for controllers"),
    932: About("Share groups (queues)"),
    939: About("Transactions of two-phase commit"),
    951: About("Produce and Fetch answer with the new leader"),
    966: About("Eligible leader replicas"),
    994: About("ListTransactions by duration"),
    1005: About("ListOffsets of the earliest local and the last tiered offset", NO_TIERS),
    1022: About("UpdateFeatures checks what features depend on"),
    1023: About("Followers of tiered logs begin at the earliest offset that is not uploaded", NO_TIERS),
    1043: About("Groups of all kinds are listed and described"),
    1052: About("Warm-up records of the performance test of producers"),
    1066: About("Cordoned log directories and brokers get no new replicas"),
    1071: About("The protocol of streams groups: the broker assigns tasks"),
    1073: About("DescribeCluster lists fenced brokers", "no broker is fenced: one that is not live is not listed"),
    1102: About("Clients begin again with their bootstrap addresses"),
    1139: About("OAUTHBEARER: settings of their own for client credentials, and JWT bearer grants", "without the JWT bearer grant"),
    1142: About("ListConfigResources"),
    1152: About("ListTransactions by a pattern of ids"),
    1161: About("Lists in settings: repeated entries, empty lists"),
    1186: About("AddRaftVoter answers before its change is committed", NO_QUORUM),
    1191: About("Dead-letter topics of share groups"),
    1206: About("ShareFetch with a strict limit of records"),
    1222: About("Acquisition locks of share groups are renewed"),
    1226: About("Lag of share groups"),
    1242: About("Connections that reached another cluster or broker are detected"),
    1251: About("Assignment epochs of consumer groups"),
    1263: About("Assignments of large groups are computed in the background"),
    1276: About("ACL hosts may be networks in CIDR notation"),
    1299: About("Keys of the performance test of producers"),
    1323: About("Offsets of share groups are set to a given offset, or from a file"),
    1331: About("Descriptions of streams groups' topologies", "kept in memory, without a plugin"),
    1357: About("Assignors of streams groups by name", "the only one is `sticky`; classes cannot be loaded"),
}


def citations(folder: Path) -> dict[int, list[Path]]:
    """Returns the files that cite each KIP, relative to `folder`."""
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.rglob("*.py")):
        for number in sorted({int(text) for text in CITATION.findall(path.read_text(encoding="utf-8"))}):
            found.setdefault(number, []).append(path.relative_to(folder))
    return found


def mistakes(cited: Iterable[int]) -> list[str]:
    """Returns a sentence for each KIP that is only cited, or only in `ABOUT`."""
    numbers = set(cited)
    missing = [f"KIP-{number} is cited, and tools/kips.py does not say what it is for" for number in sorted(numbers - ABOUT.keys())]
    return missing + [f"KIP-{number} is in tools/kips.py, and ottla/ does not cite it" for number in sorted(ABOUT.keys() - numbers)]


def shown(paths: Sequence[Path], prefix: str = "") -> str:
    """Returns the paths for a cell. For a folder with many of the paths, only the folder is named."""
    folders: dict[Path, list[Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path)
    return ", ".join(
        text for folder, files in folders.items()
        for text in ([f"`{prefix}{folder}/`"] if len(files) > MODULES_MAX else [f"`{prefix}{path}`" for path in files])
    )  # fmt: skip


@cache
def texts_of_tests() -> dict[Path, str]:
    """Returns the lines of each test module that name a module of the package, by its path below tests/."""
    folder, naming = ROOT / "tests", re.compile(r"^.*\bottla\..*$", re.MULTILINE)
    return {path.relative_to(folder): "\n".join(naming.findall(path.read_text(encoding="utf-8"))) for path in folder.rglob("test_*.py")}


def tests_of(modules: Sequence[Path], citing: Iterable[Path]) -> list[Path]:
    """Returns the tests that cite a KIP, and the tests of the modules that do; if there are none, the tests that import one of these
    modules or the messages of a handler.
    """
    folder = ROOT / "tests"
    mirrored = (module.with_name(f"test_{module.name}") for module in modules)
    found = {*citing, *(path for path in mirrored if (folder / path).exists())}
    if not found:
        names = [(".".join(("ottla", *module.parent.parts)), module.stem) for module in modules]
        names += [("ottla.wire.messages", module.stem) for module in modules if module.parts[0] == "handlers"]
        is_imported = re.compile("|".join(rf"\b{parent}(\.| import .*){name}\b" for parent, name in names)).search
        found = {path for path, text in texts_of_tests().items() if is_imported(text)}
    return sorted(found)


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Yields the cells of each KIP, in the order of their numbers. Raises `ValueError` if the table and the code differ."""
    cited, in_tests = citations(ROOT / "ottla"), citations(ROOT / "tests")
    if found := mistakes(cited):
        raise ValueError("; ".join(found))
    for number, modules in sorted(cited.items()):
        about, tests = ABOUT[number], tests_of(modules, in_tests.get(number, ()))
        yield f"KIP-{number}", about.purpose, about.difference or "served", shown(modules), shown(tests, "tests/")


def page_lines(table: Callable[[Sequence[str], Iterable[Sequence[object]]], list[str]]) -> list[str]:
    intro = (
        "Kafka's improvement proposals that the code of `ottla/` cites. The tests are the tests of the citing modules, and the tests that "
        "cite the proposal. If there are none, they are the tests that import the modules or messages. Other modules and tests may use a "
        "proposal as well."
    )
    return [intro, "", *table(("KIP", "What it is for", "State", "Where, in `ottla/`", "Tests"), rows())]
