"""`Pipeline`: an exactly-once pipeline that users define and run. It has source topics, a function from DataFrame to DataFrame, sink topics
or a table, and a group.

    from ottla.spark import Pipeline

    def transform(rows):
        return rows.selectExpr("key", "upper(cast(value as string)) AS value")

    pipeline = Pipeline(group="upper", source="words", sink="loud-words", transform=transform)
    pipeline.run()

`ottla pipeline run FILE.py` runs a pipeline that a file defines. Importing this module needs no pyspark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.client import DEFAULT_BOOTSTRAP, addresses_in
from ottla.schemas.value_options import FAIL, NULL
from ottla.spark.errors import OptionError
from ottla.spark.least_spark import check_spark
from ottla.spark.option_tables import AVAILABLE_NOW, CONTINUOUS
from ottla.spark.state_file import state_path
from ottla.spark.tables.table import Table

AS_SOON_AS_POSSIBLE = ""
APPEND = "append"
UPDATE = "update"
OUTPUT_MODES = (APPEND, UPDATE, "complete")
FORMAT = "ottla"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A streaming query from topics to topics, or to a table, whose input offsets and output are committed together.

    - `transform` gets the source's rows (key, value, topic, partition, offset, timestamp, ...) and returns rows with a `value` and
      optionally `key`, `topic`, `partition`, `headers`. A stateful `transform` must be deterministic.
    - `source`: a topic, or several. To join streams, pass a mapping from name to topics: `transform` then gets one DataFrame per name, as
      keyword arguments.
    - `sink`: one topic, or several; with several, each row names its topic in the column `topic`. Or a `Table`, which gets all columns of
      the rows; then `transform` may return any columns.
    - `group` holds the committed offsets. Each pipeline needs its own group; a second copy fences the first. With a table, the table's log
      has the offsets, and they are copied to the group after each commit.
    - `bootstrap`: some of the brokers. The default is in `OTTLA_BOOTSTRAP` or `KAFKA_BOOTSTRAP_SERVERS`, else localhost:9092.
    - `starting_offsets`: where a group without offsets begins: `earliest`, `latest`, or JSON per partition.
    - `trigger`: empty to run one batch after another, `available-now` to stop at the current end of the source, or an interval such as `5
      seconds`.
    - `output_mode`: `append`, `update` or `complete`. `name`: the query's name in Spark's user interface, by default the group.
    - `checkpoint`: a directory, by default `checkpoints/GROUP`. Without it stateful queries lose their state, other queries nothing.
    - `connection`: the client's security settings. `source_options` and `sink_options`: more options of the data source. With a table,
      `sink_options` may have `trustCheckpoint` and settings of the client (`kafka.`).
    - `settings`: Spark's settings for the session that `run` makes.
    """

    group: str
    source: str | Sequence[str] | Mapping[str, str | Sequence[str]]
    sink: str | Sequence[str] | Table
    transform: Callable[..., Any]
    bootstrap: str = field(default_factory=lambda: addresses_in(os.environ) or DEFAULT_BOOTSTRAP)
    checkpoint: str = ""
    trigger: str = AS_SOON_AS_POSSIBLE
    output_mode: str = APPEND
    starting_offsets: str = "earliest"
    name: str = ""
    connection: Mapping[str, str] = field(default_factory=dict)
    source_options: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option in ("group", "source", "sink"):
            if not getattr(self, option):
                raise OptionError(f"{option} is empty; a pipeline needs a group, a source topic and a sink topic")
        if self.output_mode not in OUTPUT_MODES:
            raise OptionError(f"output_mode {self.output_mode!r} is none of {', '.join(OUTPUT_MODES)}")
        if not callable(self.transform):
            raise OptionError("transform is not a function")
        if self.table is not None:
            self._check_table()

    def _check_table(self) -> None:
        if self.output_mode != APPEND:
            raise OptionError(f"output_mode: {self.output_mode!r} is for topics; a table takes append only, since each batch adds its rows")
        if self.dead_letter_topic:
            raise OptionError("source_options: errors with a topic is for sinks that are topics; with a table it is fail or null")
        for name in self.sink_options:
            if name.lower() != "trustcheckpoint" and not name.lower().startswith("kafka."):
                raise OptionError(f"sink_options: {name} is for topics; the options of a table are in Table(...)")

    @property
    def sources(self) -> list[str]:
        if isinstance(self.source, Mapping):
            return [topic for topics in self.source.values() for topic in topics_of(topics)]
        return topics_of(self.source)

    @property
    def table(self) -> Table | None:
        """The table that the pipeline writes; None if it writes topics."""
        return self.sink if isinstance(self.sink, Table) else None

    @property
    def sinks(self) -> list[str]:
        """The topics that the pipeline writes, including the topic of dead letters, or the location of its table."""
        if isinstance(self.sink, Table):
            return [self.sink.uri]
        return list(dict.fromkeys([*topics_of(self.sink), *filter(None, [self.dead_letter_topic])]))

    @property
    def dead_letter_topic(self) -> str:
        """The topic of values that do not fit their schema (the source option `errors`); empty if there is none."""
        options = {name.lower(): value for name, value in self.source_options.items()}
        chosen = options.get("errors", "") if "valueformat" in options else ""
        return "" if chosen.lower() in (FAIL, NULL) else chosen

    @property
    def query_name(self) -> str:
        """The name of the query in Spark's user interface."""
        return self.name or self.group

    @property
    def checkpoint_location(self) -> str:
        """The checkpoint, as an absolute path if it is local, so that a change of directory does not matter."""
        chosen = self.checkpoint or f"checkpoints/{self.group}"
        return chosen if "://" in chosen else str(Path(chosen).absolute())

    @property
    def state_file(self) -> Path:
        """The file with the pipeline's state, which `run` writes for `ottla pipeline status`."""
        return state_path(self.checkpoint_location, self.group)

    @property
    def connection_options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **{f"kafka.{key}": value for key, value in self.connection.items()}}

    def read(self, session: Any, topics: str | Sequence[str] = ()) -> Any:
        """Returns the stream of some topics (default: all of the source) with the pipeline's group and options."""
        options = {**self.connection_options, "group": self.group, "startingOffsets": self.starting_offsets, **self.source_options}
        if not any(name.lower() in ("subscribepattern", "assign") for name in self.source_options):
            options["subscribe"] = ",".join(topics_of(topics or self.sources))
        if not self._has_start_of_batches:
            options["trigger"] = AVAILABLE_NOW if self.trigger == AVAILABLE_NOW else CONTINUOUS
        return session.readStream.format(FORMAT).options(**options).load()

    def start(self, session: Any) -> Any:
        """Starts the query in a session and returns it (`StreamingQuery`)."""
        check_spark()
        if self.table is not None:
            from ottla.spark.tables.start import prepare_start

            prepare_start(session, self.table, self.group, self._sink_options)
        is_named = isinstance(self.source, Mapping)
        named = {name: self.read(session, topics) for name, topics in self.source.items()} if isinstance(self.source, Mapping) else {}
        streams = [] if is_named else [self.read(session)]
        if self.dead_letter_topic:
            from ottla.spark.typed_values import with_dead_letters

            rows = with_dead_letters(self.transform, *streams, **named)
        else:
            rows = self.transform(*streams, **named)
        writer = self._writer(rows).option("checkpointLocation", self.checkpoint_location).queryName(self.query_name)
        if self.trigger == AVAILABLE_NOW and self._has_start_of_batches:
            writer = writer.trigger(availableNow=True)
        elif self.trigger not in (AVAILABLE_NOW, AS_SOON_AS_POSSIBLE):
            writer = writer.trigger(processingTime=self.trigger)
        from ottla.spark.session import quick_checkpoints

        with quick_checkpoints(session):
            query = writer.start()
        if self.trigger == AVAILABLE_NOW and not self._has_start_of_batches:
            from ottla.spark.runner import spark_errors
            from ottla.spark.spark_versions import stop_at_end

            stop_at_end(query, spark_errors())
        return query

    @property
    def _has_start_of_batches(self) -> bool:
        from ottla.spark.spark_versions import has_start_of_batches

        return has_start_of_batches()

    @property
    def _sink_options(self) -> dict[str, str]:
        return {**self.connection_options, "group": self.group, **self.sink_options}

    def _writer(self, rows: Any) -> Any:
        """Returns the query's writer: `foreachBatch` for the output mode update, which Spark does not support for sinks in Python."""
        options = self._sink_options
        if self.table is not None:
            from ottla.spark.tables.start import table_writer

            return table_writer(rows, self.table, options)
        topics = [] if isinstance(self.sink, Table) else topics_of(self.sink)
        if len(topics) == 1:
            options.setdefault("topic", topics[0])
        if self.output_mode != UPDATE:
            return rows.writeStream.format(FORMAT).options(**options).outputMode(self.output_mode)
        from ottla.spark.foreach_batch import exactly_once

        commit = exactly_once(lambda batch, _: batch, options, checkpoint=self.checkpoint_location)
        return rows.writeStream.foreachBatch(commit).outputMode(UPDATE)

    def run(self, session: Any = None, **options: Any) -> None:
        """Runs the query until it ends, Ctrl-C or SIGTERM; see `run_pipelines` for the options."""
        from ottla.spark.runner import run_pipelines

        run_pipelines([self], session, **options)


def topics_of(topics: str | Sequence[str]) -> list[str]:
    """Returns the topics as a list, given one topic, several separated by commas, or a sequence."""
    words = topics.split(",") if isinstance(topics, str) else topics
    return [word.strip() for word in words if word.strip()]
