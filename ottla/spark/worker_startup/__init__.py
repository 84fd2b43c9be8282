"""A directory on the PYTHONPATH of Spark's Python workers; Python runs its `sitecustomize` at the start."""
