"""A topic as a DataFrame, without Spark: `ottla.frame` reads records into Arrow, and `ottla sql` runs queries of DuckDB over them.

`frame.py` has the public function. The package imports pyarrow, numpy, duckdb and the libraries of DataFrames on use, and names a missing
package (`packages.py`).
"""
