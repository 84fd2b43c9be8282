"""Tests of the project's style: rules that can be checked in the text or the syntax tree of files."""
