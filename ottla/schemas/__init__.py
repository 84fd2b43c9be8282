"""Avro, Protobuf and JSON by a schema, from a file or a schema registry. The libraries are in the extra `ottla[schemas]`.

`formats.py` has one value at a time, for the command line; the `*_columns.py` convert columns of values to Arrow and back, for
`ottla.frame` and Spark. Nothing is imported before it is used.
"""
