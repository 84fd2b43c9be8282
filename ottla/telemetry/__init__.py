"""The broker's side of metrics that clients push (KIP-714): subscriptions, the clients that push, the decoding of their payloads, and the
series that the broker keeps and exports.
"""
