"""Handlers of the APIs of logins, access rules and delegation tokens."""
