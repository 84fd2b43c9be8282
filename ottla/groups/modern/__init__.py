"""Modern groups: the parts that consumer groups (KIP-848) and share groups (KIP-932) have in common."""
