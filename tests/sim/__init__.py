"""A seeded simulation of transactions: real partitions, coordinators and handlers in an unkind world.

`python -m tests.sim --seeds 200 [--seed 1]` runs one world for each seed; a failure prints the seed that repeats it. `world.py` drives,
`broker.py` is a broker and its crashes, `network.py` loses and delays, `clients.py` and `readers.py` work as processes of `process.py`,
`history.py` and `logs.py` judge, `faults.py` breaks rules on purpose to show that the judges see it (`python -m tests.sim --faults`).
"""
