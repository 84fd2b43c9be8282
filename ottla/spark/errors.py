"""The errors that the data source, the sink and the pipelines raise to end a query.

Each message names the option, topic or offsets that it concerns, because Spark shows it inside its own stack trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.arrow import errors as codec
from ottla.schemas import errors as schemas

SQL_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
_OUR_ERROR = re.compile(r"\bottla(?:\.\w+)+\.([A-Z]\w*): (.*)")
_ERROR_LINE = re.compile(r"(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt): .*)")


class PipelineError(Exception):
    """The base class of all errors of a pipeline."""


class OptionError(PipelineError, ValueError):
    """An option is missing, unknown, malformed or contradicts another one; the message begins with its name."""


class DataLossError(PipelineError):
    """Records that a batch has to read no longer exist (`failOnDataLoss`)."""


class DamagedBatchError(PipelineError):
    """A batch of the source cannot be decoded; the message has topic, partition and offset."""


class UnfitValueError(PipelineError):
    """A value of the source does not fit its schema; the message has topic, partition and offset."""


class OffsetConflictError(PipelineError):
    """The group's committed offsets do not fit the batch, or source and sink do not have the same group."""


class OutputError(PipelineError):
    """Rows cannot be written: a null topic, a partition that does not exist, a value that is too large, or more output than allowed."""


class SpoolError(PipelineError):
    """A task's output for the driver cannot be written, or is missing or damaged."""


class MissingRequirementError(PipelineError):
    """Java, pyspark, pyarrow or pandas is missing, too old or too new; the message says how to install it."""


class FencedDriverError(PipelineError):
    """Another driver took over the transactional id, or the transaction ran out of time; this driver must stop."""


class BrokerError(PipelineError):
    """The cluster refused a batch permanently, or did not answer in time; the message has the client's reason."""


class QueryFailedError(PipelineError):
    """A query failed; the message is one line with the reason.

    For an error in the user's own code, `details` has the Python traceback and the causes that Spark names. For a `PipelineError` `details`
    is empty.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


@contextmanager
def as_pipeline_errors() -> Iterator[None]:
    """Converts errors of the codec, of schemas and of registries to errors of a pipeline with the same message. A record that is too large
    gets the options to raise."""
    try:
        yield
    except codec.DamagedBatchError as error:
        raise DamagedBatchError(str(error)) from None
    except codec.RecordTooLargeError as error:
        raise OutputError(f"{error}, or raise kafka.max.request.size and the topic's max.message.bytes") from None
    except codec.RowsError as error:
        raise OutputError(str(error)) from None
    except schemas.SchemaUsageError as error:
        raise OptionError(str(error)) from None
    except schemas.MissingPackageError as error:
        raise MissingRequirementError(f"{error}; Spark's workers need it too") from None
    except schemas.SchemaError as error:
        raise PipelineError(str(error)) from None


def reason_of(error: BaseException | str) -> str:
    """Returns the line of Spark's error that says why a query failed: the last one with an error, preferably one of ours.

    Spark wraps errors in its own message, with the query's plan, and with tracebacks in `foreachBatch`.
    """
    text = str(error)
    if isinstance(error, PipelineError):
        return f"{type(error).__name__}: {text}"
    ours = [f"{name}: {message}" for name, message in _OUR_ERROR.findall(text)]
    named = [match[1] for line in text.splitlines() if (match := _ERROR_LINE.match(line.strip()))]
    lines = [line.strip() for line in text.splitlines() if line.strip()][:1]
    found: str = (ours or named or lines or ["the query failed without a message"])[-1]
    return SQL_STATE.sub("", found)


def error_in(text: str) -> PipelineError | None:
    """Returns the error of ours that Spark's message contains, as it was raised in a worker; None without one."""
    found = _OUR_ERROR.findall(text)
    if not found:
        return None
    name, message = found[-1]
    kinds = {kind.__name__: kind for kind in PipelineError.__subclasses__()}
    return kinds.get(name, PipelineError)(SQL_STATE.sub("", message))
