"""A topic as a DataFrame, without Spark: `ottla.frame` reads records into Arrow, and `ottla sql` asks DuckDB about them.

`frame.py` is the front door. It imports pyarrow, numpy, duckdb and the libraries of DataFrames on use, and says which package is missing.
"""
