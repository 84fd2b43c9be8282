"""Prints and writes records by a schema: Avro, Protobuf, JSON Schema, and schema registries. `optional.py` loads it."""
