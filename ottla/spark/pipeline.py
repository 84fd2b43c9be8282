"""An exactly-once pipeline as a thing to run: source topics, a function from DataFrame to DataFrame, sink topics, a group.

    from ottla.spark import Pipeline

    def transform(rows):
        return rows.selectExpr("key", "upper(cast(value as string)) AS value")

    pipeline = Pipeline(group="upper", source="words", sink="loud-words", transform=transform)
    pipeline.run()

`ottla pipeline run FILE.py` runs what such a file defines. Importing this module needs no pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.spark.errors import OptionError
from ottla.spark.state_file import state_path

AVAILABLE_NOW = "available-now"
AS_SOON_AS_POSSIBLE = ""
APPEND = "append"
UPDATE = "update"
OUTPUT_MODES = (APPEND, UPDATE, "complete")
FORMAT = "ottla"
DEFAULT_BOOTSTRAP = "localhost:9092"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A streaming query from topics to topics whose input offsets and output are committed as one.

    - `transform` gets the source's rows (key, value, topic, partition, offset, timestamp, ...) and returns rows with a `value`, and where
      needed `key`, `topic`, `partition`, `headers`. It must be deterministic where it keeps state.
    - `source`: a topic, or several. A join of streams needs each by itself: of a mapping `transform` gets the rows of each by its name, as
      keyword arguments.
    - `sink`: one topic, or several; of several, each row names its own in the column `topic`.
    - `group` holds the committed offsets. One pipeline a group: a second copy fences the first.
    - `starting_offsets`: where a group without offsets begins, `earliest`, `latest`, or JSON per partition.
    - `trigger`: empty for one batch after another, `available-now` to stop at the end of what there is, or a time such as `5 seconds`.
    - `checkpoint`: a directory; `checkpoints/GROUP` unless given. Stateful queries lose their state with it, others nothing.
    - `connection`: the client's security settings. `source_options` and `sink_options`: more options of the data source.
    - `settings`: Spark's, for the session that `run` makes.
    """

    group: str
    source: str | Sequence[str] | Mapping[str, str | Sequence[str]]
    sink: str | Sequence[str]
    transform: Callable[..., Any]
    bootstrap: str = DEFAULT_BOOTSTRAP
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

    @property
    def sources(self) -> list[str]:
        if isinstance(self.source, Mapping):
            return [topic for topics in self.source.values() for topic in topics_of(topics)]
        return topics_of(self.source)

    @property
    def sinks(self) -> list[str]:
        return topics_of(self.sink)

    @property
    def query_name(self) -> str:
        """What Spark's user interface calls the query."""
        return self.name or self.group

    @property
    def checkpoint_location(self) -> str:
        """The checkpoint, absolute where it is on this machine: Spark would look for it elsewhere after a change of directory."""
        chosen = self.checkpoint or f"checkpoints/{self.group}"
        return chosen if "://" in chosen else str(Path(chosen).absolute())

    @property
    def state_file(self) -> Path:
        """Where `run` keeps the pipeline's state for `ottla pipeline status`."""
        return state_path(self.checkpoint_location, self.group)

    @property
    def connection_options(self) -> dict[str, str]:
        """The options of source and sink that say where the brokers are."""
        return {"kafka.bootstrap.servers": self.bootstrap, **{f"kafka.{key}": value for key, value in self.connection.items()}}

    def read(self, session: Any, topics: str | Sequence[str] = ()) -> Any:
        """The stream of some topics, all of the source unless given, with the pipeline's group and options."""
        options = {**self.connection_options, "group": self.group, "startingOffsets": self.starting_offsets, **self.source_options}
        if not any(name.lower() in ("subscribepattern", "assign") for name in self.source_options):
            options["subscribe"] = ",".join(topics_of(topics or self.sources))
        return session.readStream.format(FORMAT).options(**options).load()

    def start(self, session: Any) -> Any:
        """Starts the query in a session and returns it (`StreamingQuery`)."""
        if isinstance(self.source, Mapping):
            rows = self.transform(**{name: self.read(session, topics) for name, topics in self.source.items()})
        else:
            rows = self.transform(self.read(session))
        writer = self._writer(rows).option("checkpointLocation", self.checkpoint_location).queryName(self.query_name)
        if self.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif self.trigger != AS_SOON_AS_POSSIBLE:
            writer = writer.trigger(processingTime=self.trigger)
        return writer.start()

    def _writer(self, rows: Any) -> Any:
        """The query's writer; Spark has no updates for sinks in Python, so that they go by way of `foreachBatch`."""
        options = {**self.connection_options, "group": self.group, **self.sink_options}
        if len(self.sinks) == 1:
            options.setdefault("topic", self.sinks[0])
        if self.output_mode != UPDATE:
            return rows.writeStream.format(FORMAT).options(**options).outputMode(self.output_mode)
        from ottla.spark.foreach_batch import exactly_once

        commit = exactly_once(lambda batch, _: batch, options, checkpoint=self.checkpoint_location)
        return rows.writeStream.foreachBatch(commit).outputMode(UPDATE)

    def run(self, session: Any = None, **options: Any) -> None:
        """Runs the query until it ends, Ctrl-C or SIGTERM; `run_pipelines` has the options."""
        from ottla.spark.runner import run_pipelines

        run_pipelines([self], session, **options)


def topics_of(topics: str | Sequence[str]) -> list[str]:
    """One topic, several with commas between them, or a sequence of topics, as a list."""
    words = topics.split(",") if isinstance(topics, str) else topics
    return [word.strip() for word in words if word.strip()]
