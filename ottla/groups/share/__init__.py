"""Share groups of KIP-932: members, assignment, and what share coordinators are asked to remember."""
