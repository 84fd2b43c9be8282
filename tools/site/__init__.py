"""The documentation's site: a hook of its build, and a check of its pages in a browser."""
