"""The group coordinator: membership, rebalances and committed offsets. It is a state machine over its log (`machine/contract.py`)."""
