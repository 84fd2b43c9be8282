"""The table of settings, cut into files by subject; `ottla/base/config.py` joins them.

Each setting is declared once, as an attribute of a class: Kafka name, type, default, valid values, whether it may change while the broker
runs, and a sentence for people. Parsing, `config check`, `config defaults`, DescribeConfigs and the documentation all read these lines.
"""
