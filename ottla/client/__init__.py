"""The protocol from the other side: what peers, the command line and the tools use to speak to a broker."""
