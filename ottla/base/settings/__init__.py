"""The table of settings, one file for each subject; `ottla/base/config.py` combines them.

Each setting is declared once, as an attribute of a class: Kafka's name, type, default, valid values, whether it may change while the broker
runs, and a description. Parsing, `config check`, `config defaults`, DescribeConfigs and the documentation all read these lines.
"""
