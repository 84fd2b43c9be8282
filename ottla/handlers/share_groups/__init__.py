"""Handlers of the APIs of share groups: members, their records, and the stored states."""
