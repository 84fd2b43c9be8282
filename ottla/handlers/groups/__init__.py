"""Handlers of the APIs of groups: members, committed offsets, and the administration of both."""
