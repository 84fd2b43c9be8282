"""Implements `ottla top`, a live view of a cluster. `analysis/sample.py` asks the brokers, `view.py` draws, and `top.py` repeats this and
reads keys.
"""
