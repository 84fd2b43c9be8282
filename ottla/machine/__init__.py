"""Log machines: decide, append, apply, hold, release."""
