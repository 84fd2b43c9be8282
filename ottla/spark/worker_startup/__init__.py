"""A directory for the PYTHONPATH of Spark's Python workers: Python runs the `sitecustomize` in it when it starts. See there."""
