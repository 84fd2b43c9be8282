"""Record batches to Arrow columns and back, without a Python object per record: the codec of the Spark pipeline and of frames.

`decode.py` makes Arrow of fetched batches; `partitioning.py` and `encode.py` make batches of Arrow rows. The modules need numpy and
pyarrow. The package itself imports nothing.
"""
