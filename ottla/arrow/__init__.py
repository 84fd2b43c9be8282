"""Record batches to Arrow columns and back, without a Python object per record: the codec of the Spark pipeline and of frames.

`decode.py` converts fetched batches to Arrow; `partitioning.py` and `encode.py` convert Arrow rows to batches. The modules need numpy and
pyarrow. The package itself imports nothing.
"""
