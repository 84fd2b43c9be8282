"""`ottla start --cores N`: N brokers of one cluster on one machine as one service, because one broker uses one core."""
