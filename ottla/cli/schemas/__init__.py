"""Decodes and encodes the records of `consume` and `produce` by a schema: Avro, Protobuf or JSON Schema, from files or schema registries.
`optional.py` loads it.
"""
