"""`ottla top`: a live view of a cluster. `analysis/sample.py` asks the brokers, `view.py` draws, `top.py` repeats and reads keys."""
