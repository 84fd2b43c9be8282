"""Commands that decode and show: files of a log, frames of the protocol, metrics."""
