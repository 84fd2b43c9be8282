"""Share groups (KIP-932): delivers records one by one to many readers, and stores the state of each record in `__share_group_state`."""
