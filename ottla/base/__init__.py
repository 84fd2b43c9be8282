"""Nouns and promises that every layer shares: types, failures, settings, ports. Imports nothing of ours."""
