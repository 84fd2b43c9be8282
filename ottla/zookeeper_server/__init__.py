"""A small ZooKeeper server in Python, for the brokers of one machine: it serves ZooKeeper's protocol and keeps the nodes in the broker's
embedded metadata store. It has no ensemble.
"""
