"""Encodes and decodes Kafka's protocol: primitive types, frames, messages, record batches. Pure: it does no I/O."""
