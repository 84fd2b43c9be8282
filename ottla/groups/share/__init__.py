"""Share groups (KIP-932): members, assignment, and requests to share coordinators."""
