"""`ottla topic`: topics, and what every command takes as a topic's name."""
