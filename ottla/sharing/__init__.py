"""Share groups (KIP-932): records handed out one by one to many readers, and what became of each, kept in `__share_group_state`."""
