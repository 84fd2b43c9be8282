"""Bytes to objects and back: primitives, framing, the schema compiler, record batches. Pure."""
