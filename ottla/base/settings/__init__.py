"""The table of settings, cut into files by subject; `ottla/base/config.py` joins them.

Each setting stands once, as an attribute of a class: its Kafka name, type, default, what is valid, whether it may change while the broker
runs, and a sentence for people. Parsing, `config check`, `config defaults`, DescribeConfigs and the documentation all read these lines.
"""
