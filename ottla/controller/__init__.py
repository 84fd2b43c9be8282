"""The controller: elects leaders, places replicas, and changes topics and settings. The metadata store holds its state."""
