"""Settings of staged records: the quotas, and the retention time of records that are not attached."""

from __future__ import annotations

from ottla.base.settings.setting import UpdateMode, at_least, long

WIDE = UpdateMode.CLUSTER_WIDE


class StagingSettings:
    """StageRecords and AttachRecords, our extension for pipelines that send from many machines."""

    ottla_stage_bytes_max = long(
        "ottla.stage.bytes.max",
        1 << 30,
        "Maximum staged bytes of all clients together; 0 refuses staging.",
        valid=at_least(0),
        update=WIDE,
    )
    ottla_stage_principal_bytes_max = long(
        "ottla.stage.principal.bytes.max", 512 << 20, "Maximum staged bytes of one principal.", valid=at_least(0), update=WIDE
    )
    ottla_stage_retention_ms = long(
        "ottla.stage.retention.ms",
        600000,
        "Staged records are removed if no transaction attaches them within this time after the last request to their stage.",
        valid=at_least(1),
        update=WIDE,
    )
