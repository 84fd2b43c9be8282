"""One replica of a partition, as leader or follower: in-sync replicas, high watermark, leader epochs. Its only side effects are on its log.
"""
