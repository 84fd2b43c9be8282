"""One replica of a partition, as leader or follower: in-sync replicas, high watermark, leader epochs. It has no I/O except through its log.
"""
