"""Commands on brokers of this machine and their data: start, dev, stop, status, reset, snapshot, restore, clone, service."""
