"""Declares the messages of the protocol, all versions in one declaration. An API has one module for request and response; stored records
and other data have modules of their own."""
