"""Stores the log of a partition: appends, reads, truncates, rolls and recovers it. Its calls are synchronous, and use the disk only through
the interface `ports.Disk`."""
