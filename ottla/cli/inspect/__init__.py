"""Commands that show what is inside: files of a log, frames of the protocol, metrics."""
