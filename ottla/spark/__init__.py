"""Exactly-once pipelines on Spark: a data source and sink named `ottla`, and the relay protocol that commits their output.

Tasks read record batches into Arrow and encode Arrow into record batches; the driver sends what they encoded in one transaction with the
group's offsets. Importing the package imports neither pyspark nor pyarrow: the modules that need them do.
"""
