"""Transcripts: commands to a machine and its answers, as text that people can read and a diff can show.

A file of `<area>/*.txt` is a row of blocks with a blank line between: lines that begin with `#` are remarks, the next line is a command,
then `----`, then its output (which may be empty). `<area>_world.py` has the `World` that carries the commands out.
`test_transcripts.py` compares; with OTTLA_REWRITE=1 (`make rewrite`) it writes down what comes out now, and the diff is what is reviewed.
"""
