"""`ottla features`: shows and changes the feature levels of a cluster.

`upgrade` and `downgrade` take `--feature NAME=LEVEL` or `--metadata X.Y`, `disable` takes `--feature NAME`. `upgrade --release-version X.Y`
requests the levels of a version of Kafka. If the broker refuses a level, the output names the feature. Ottla's broker then changes no level
at all.
"""

from __future__ import annotations

from ottla.base.errors import error_code
from ottla.cli.command import Args, Refused, UsageError, command, flag, merged, option
from ottla.cli.render.ottla import Output, Row, unshown
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

METADATA = "metadata.version"
_FIRST_METADATA = 7
_METADATA_NAMES = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3"),
    *("4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0"),
)
_HIGHEST = {
    "kraft.version": 1,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 2,
    "streams.version": 1,
}
_NEEDS = {("eligible.leader.replicas.version", 1): (METADATA, 23)}


def metadata_name(level: int) -> str | None:
    """Returns the name of a level of metadata.version, such as 4.0-IV3; None for an unknown level."""
    position = level - _FIRST_METADATA
    return _METADATA_NAMES[position] if 0 <= position < len(_METADATA_NAMES) else None


def dependency(name: str, level: int) -> tuple[str, int] | None:
    """Returns the feature and level that a level of a feature needs, or None. Raises `UsageError` for an unknown feature and `Refused` for
    an unknown level."""
    if name == METADATA:
        if metadata_name(level) is None:
            raise Refused(f"Unknown metadata.version {level}", "INVALID_UPDATE_VERSION")
    elif name not in _HIGHEST:
        raise UsageError(f"Unknown feature: {name}")
    elif level > _HIGHEST[name]:
        raise Refused(f"No feature:{name} with feature level {level}", "INVALID_UPDATE_VERSION")
    return _NEEDS.get((name, level))


def named_level(name: str, level: int) -> str:
    return f"{name}={level}" + (f" ({metadata_name(level)})" if name == METADATA else "")


_NAMES = (
    "metadata.version",
    "kraft.version",
    "transaction.version",
    "group.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
)
_LEVELS = {
    "3.3": (7, 0, 0, 0, 0, 0, 0),
    "3.4": (8, 0, 0, 0, 0, 0, 0),
    "3.5": (11, 0, 0, 0, 0, 0, 0),
    "3.6": (14, 0, 0, 0, 0, 0, 0),
    "3.7": (19, 0, 0, 0, 0, 0, 0),
    "3.8": (20, 0, 0, 0, 0, 0, 0),
    "3.9": (21, 1, 0, 0, 0, 0, 0),
    "4.0": (25, 1, 2, 1, 0, 0, 0),
    "4.1": (27, 1, 2, 1, 1, 0, 0),
    "4.2": (29, 1, 2, 1, 1, 1, 1),
    "4.3": (30, 1, 2, 1, 1, 1, 1),
}
LEVELS: dict[str, dict[str, int]] = {release: dict(zip(_NAMES, levels, strict=True)) for release, levels in _LEVELS.items()}
"""The level of each feature, by release of Kafka."""
RELEASES = {**LEVELS, **{str(metadata_name(levels[METADATA])): levels for levels in LEVELS.values()}}
"""`LEVELS` with a second key for each release: the name of its metadata.version, such as 4.0-IV3."""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class FeatureRow(Row):
    feature: str
    supported_min: int
    supported_max: int
    finalized: int
    epoch: int


class ChangeRow(Row):
    """The result for a feature in `upgrade`, `downgrade` and `disable`."""

    feature: str
    level: int
    result: str
    error: str | None
    message: str | None
    verb: str = unshown()
    is_dry_run: bool = unshown()


class LevelRow(Row):
    release: str
    feature: str
    level: int


class DependencyRow(Row):
    """A level of a feature, and the level of another feature that it needs."""

    feature: str
    level: int
    needs: str | None
    named: str = unshown()


def request_versions(cluster: Cluster) -> ApiVersionsResponse:
    """Requests ApiVersions in version 4, or 3 from older brokers. Version 3 omits features with the lowest level 0."""
    from ottla._version import __version__

    connection = cluster.any_connection()
    version = 4 if connection.offers(ApiVersionsRequest.API_KEY, 4) else 3
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    answer: ApiVersionsResponse = connection.request(request, version=version)
    return answer


@command("features describe", "Feature levels of the cluster.", may_watch=True)
def _describe(args: Args, cluster: Cluster, output: Output) -> None:
    answer = request_versions(cluster)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    rows = [
        FeatureRow(feature.name, feature.min_version, feature.max_version, levels.get(feature.name, 0), answer.finalized_features_epoch)
        for feature in sorted(answer.supported_features, key=lambda found: str(found.name))
    ]
    output.rows("features", FeatureRow, rows)


CHANGE_OPTIONS = (
    option("--feature", action="append", metavar="NAME=LEVEL,...", help="the new level"),
    option("--metadata", metavar="X.Y", help="the level of metadata.version in this release of Kafka"),
    flag("--dry-run", help="only validate the change on the broker"),
)


def _levels(texts: list[str] | None, metadata: str | None = None) -> dict[str, int]:
    if metadata is not None and metadata not in LEVELS:
        raise UsageError(f"--metadata {metadata!r} is none of {', '.join(LEVELS)}")
    levels: dict[str, int] = {} if metadata is None else {METADATA: LEVELS[metadata][METADATA]}
    for text in merged(texts):
        name, _, level = text.partition("=")
        if not name or not level.isdecimal():
            raise UsageError(f"--feature {text!r} is not NAME=LEVEL, such as transaction.version=2")
        levels[name] = int(level)
    return levels


@command(
    "features upgrade",
    "Raise feature levels.",
    *CHANGE_OPTIONS,
    option("--release-version", choices=tuple(LEVELS), metavar="X.Y", help="the levels of this version of Kafka"),
)
def _upgrade(args: Args, cluster: Cluster, output: Output) -> int:
    levels = _levels(args.feature, args.metadata)
    if bool(levels) == bool(args.release_version):
        raise UsageError("give either --feature NAME=LEVEL or --release-version X.Y")
    wanted = levels or {name: level for name, level in LEVELS[args.release_version].items() if level}
    return _change(args, cluster, output, "upgrade", wanted, UPGRADE, only_offered=not levels)


@command("features downgrade", "Lower feature levels.", *CHANGE_OPTIONS, flag("--unsafe", help="also if metadata may be lost"))
def _downgrade(args: Args, cluster: Cluster, output: Output) -> int:
    levels = _levels(args.feature, args.metadata)
    if not levels:
        raise UsageError("give --feature NAME=LEVEL")
    return _change(args, cluster, output, "downgrade", levels, UNSAFE_DOWNGRADE if args.unsafe else SAFE_DOWNGRADE)


@command(
    "features disable",
    "Set features to level 0.",
    option("--feature", action="append", metavar="NAME,...", help="the feature"),
    flag("--unsafe", help="also if metadata may be lost"),
    flag("--dry-run", help="only validate the change on the broker"),
)
def _disable(args: Args, cluster: Cluster, output: Output) -> int:
    names = merged(args.feature)
    if not names or any("=" in name for name in names):
        raise UsageError("give --feature NAME")
    return _change(args, cluster, output, "disable", dict.fromkeys(names, 0), UNSAFE_DOWNGRADE if args.unsafe else SAFE_DOWNGRADE)


def _change(
    args: Args, cluster: Cluster, output: Output, verb: str, levels: dict[str, int], kind: int, *, only_offered: bool = False
) -> int:
    """Requests the levels and prints the results. Returns exit code 1 if the broker refuses a level. With `only_offered`, omits features
    that the broker does not support."""
    from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

    if only_offered:
        offered = {feature.name for feature in request_versions(cluster).supported_features}
        levels = {name: level for name, level in levels.items() if name in offered}
    updates = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in sorted(levels.items())]
    request = UpdateFeaturesRequest(timeout_ms=admin.timeout_ms(cluster), feature_updates=updates, validate_only=args.dry_run)
    answer = admin.ask_controller(cluster, request)
    results = {found.feature: (found.error_code, found.error_message) for found in answer.results}
    rows = []
    for name, level in sorted(levels.items()):
        code, message = results.get(name, (answer.error_code, answer.error_message))
        error = error_code(code).name if code else None
        rows.append(ChangeRow(name, level, "refused" if code else "done", error, message or None, verb, args.dry_run))
    output.rows("features", ChangeRow, rows, extra={"dry_run": args.dry_run})
    return 1 if any(row.error for row in rows) else 0


@command(
    "features version-mapping",
    "The feature levels of a version of Kafka.",
    option("--release-version", choices=tuple(RELEASES), metavar="X.Y", help="only this version of Kafka"),
)
def _mapping(args: Args, output: Output) -> None:
    """Prints the levels of releases. Needs no broker."""
    releases = LEVELS if args.release_version is None else {args.release_version: RELEASES[args.release_version]}
    rows = [LevelRow(release, name, level) for release, levels in releases.items() for name, level in levels.items()]
    output.rows("levels", LevelRow, rows)


@command(
    "features feature-dependencies",
    "The features that a level of a feature depends on.",
    option("--feature", action="append", required=True, metavar="NAME=LEVEL,...", help="the features to look up"),
)
def _dependencies(args: Args, output: Output) -> None:
    """Prints the feature levels that each given level needs. Needs no broker."""
    rows = []
    for name, level in _levels(args.feature).items():
        needed = dependency(name, level)
        rows.append(DependencyRow(name, level, named_level(*needed) if needed else None, named_level(name, level)))
    output.rows("dependencies", DependencyRow, rows)
