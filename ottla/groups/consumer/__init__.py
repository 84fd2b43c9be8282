"""Consumer groups of KIP-848, their classic members, and the way from one protocol to the other."""
