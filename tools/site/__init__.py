"""The documentation's site: a hook of its build, README as a page, and a check of all pages in a browser."""
