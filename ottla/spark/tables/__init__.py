"""Tables as the sink of a pipeline: tasks write Parquet files, and the driver commits them in the table's own log, with the offsets of the
source.

The table's log is the truth. Delta Lake (`delta.py`) and Apache Iceberg (`iceberg.py`) are written by their Python libraries, from the
extra `ottla[table]`; no jar is needed. `Table` describes a table and needs none of these packages.
"""
