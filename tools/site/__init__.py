"""The site of the documentation: hooks of its build, README as a page, and a check of all pages in a browser."""
