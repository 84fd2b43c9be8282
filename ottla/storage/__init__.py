"""One log on a disk port: append, read, truncate, roll, recover. Synchronous."""
