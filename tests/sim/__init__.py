"""A seeded simulation of brokers and clusters: the production code runs on simulated disks, networks and clocks, with faults. `python -m
tests.sim --seeds 200 [--seed 1]` runs one world (one simulated run) for each seed; a failure prints the seed that repeats it. `world.py`
runs a world, `broker.py` is a broker with its crashes, `network.py` loses and delays messages, `clients.py` and `readers.py` are client
processes (`process.py`), and `history.py` and `logs.py` judge the results. `faults.py` breaks rules of the product on purpose, to show that
the judges notice it (`python -m tests.sim --faults`).
"""
