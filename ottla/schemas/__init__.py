"""Reads and writes values in Avro, Protobuf and JSON by a schema from a file or a schema registry. The libraries are in the extra
`ottla[schemas]`.

`formats.py` converts one value at a time, for the command line. The modules `*_columns.py` convert columns of values to Arrow and back, for
`ottla.frame` and Spark. Libraries are imported on use.
"""
