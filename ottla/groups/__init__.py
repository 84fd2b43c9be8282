"""The group coordinator: membership, rebalances, committed offsets, as a log machine."""
