"""Runs a coordinator as a state machine: its state is computed from the records in one partition of an internal topic."""
