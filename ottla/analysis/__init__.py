"""What the command line and the console compute about a cluster: samples, lag, plans of resets, open transactions, and why clients wait."""
