"""The table that a pipeline writes: `Table`, its options, and their checks. Needs neither pyspark nor pyarrow.

from ottla.spark import Pipeline, Table

orders = Table("/data/orders", partition_by=["day"])
pipeline = Pipeline(group="orders-table", source="orders", sink=orders, transform=transform)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ottla.spark.errors import OptionError

DELTA, ICEBERG = TABLE_FORMATS = ("delta", "iceberg")
COMPRESSIONS = ("none", "snappy", "lz4", "zstd", "gzip")
FILE_BYTES = 128 * 1024 * 1024
"""Default size goal of a data file, in bytes: large enough for scans, small enough to be rewritten in seconds."""
FILE_BYTES_MIN = 64 * 1024

S3_SCHEMES = ("s3", "s3a")
STORAGE_KEYS = (
    "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_region", "aws_endpoint_url", "aws_allow_http",
)  # fmt: skip
"""The keys of `storage`, which have the names of AWS's environment variables. Each one that is missing is read from the environment."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table for `Pipeline(sink=...)`. A pipeline creates it if it does not exist, with the columns of its first batch.

    - `location`: a directory, or `s3://BUCKET/PATH`.
    - `format`: `delta` or `iceberg`.
    - `partition_by`: columns whose values divide the table into partitions: strings, whole numbers, booleans or dates. An existing table
      keeps its own.
    - `add_columns`: whether columns of the rows that the table lacks are added to it; otherwise such rows are refused.
    - `file_bytes`: the size goal of a data file. Tasks begin another file at this size, and `ottla pipeline compact` joins smaller ones.
    - `compression`: of the Parquet files: `none`, `snappy`, `lz4`, `zstd` or `gzip`.
    - `storage`: access to the object store (`STORAGE_KEYS`). A missing key is read from the environment.
    - `catalog`, only for Iceberg and required there: the properties of PyIceberg's catalog, such as `type` and `uri`; `name` is the
      catalog's name, which PyIceberg's configuration may describe (`default`). `name`: the table's name in the catalog, by default
      `default.` and the last part of the location.
    """

    location: str
    _: KW_ONLY
    format: str = DELTA
    partition_by: Sequence[str] = ()
    add_columns: bool = False
    file_bytes: int = FILE_BYTES
    compression: str = "zstd"
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition_by", _columns(self.partition_by))
        object.__setattr__(self, "storage", {key.lower(): str(value) for key, value in self.storage.items()})
        for option, value, choices in (
            ("format", self.format, TABLE_FORMATS),
            ("compression", self.compression, COMPRESSIONS),
            *(("storage", key, STORAGE_KEYS) for key in self.storage),
        ):
            if value not in choices:
                raise OptionError(f"{option}: {value!r} is none of {', '.join(choices)}")
        if not self.location:
            raise OptionError("location: is empty; a table needs a directory or an address such as s3://bucket/path")
        scheme = urlsplit(self.location).scheme if "://" in self.location else "file"
        if scheme not in ("file", *S3_SCHEMES):
            raise OptionError(f"location: {self.location!r} is neither a directory nor an address in S3 (s3://bucket/path)")
        if self.file_bytes < FILE_BYTES_MIN:
            raise OptionError(f"file_bytes: {self.file_bytes} is less than {FILE_BYTES_MIN}")
        self._check_catalog()

    def _check_catalog(self) -> None:
        if self.format == ICEBERG and not self.catalog:
            raise OptionError(
                "catalog: missing; an Iceberg table is found through a catalog, such as "
                "catalog={'type': 'sql', 'uri': 'sqlite:////var/lib/catalog.db'}"
            )
        if self.format == DELTA and (self.catalog or self.name):
            raise OptionError(f"{'catalog' if self.catalog else 'name'}: is for format='iceberg'; a Delta table is found by its location")

    @property
    def is_local(self) -> bool:
        return "://" not in self.location or urlsplit(self.location).scheme == "file"

    @property
    def uri(self) -> str:
        """The location as an absolute path or an address, without a slash at its end."""
        if not self.is_local:
            return self.location.replace("s3a://", "s3://", 1).rstrip("/")
        path = unquote(urlsplit(self.location).path) if "://" in self.location else self.location
        return str(Path(path).absolute())

    @property
    def identifier(self) -> str:
        """The table's name in the catalog."""
        return self.name or f"default.{self.uri.rpartition('/')[2]}"

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "location": self.uri})

    @staticmethod
    def from_json(text: str) -> Table:
        return Table(**json.loads(text))


def _columns(names: Sequence[str]) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(names)
    if len(set(found)) < len(found):
        raise OptionError(f"partition_by: {', '.join(found)} names a column twice")
    return found
