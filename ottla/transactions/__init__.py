"""The transaction coordinator. It is a state machine over its log (`machine/contract.py`)."""
