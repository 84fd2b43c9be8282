"""The web console: pages in a browser that show a Kafka cluster and change it. The console is a separate process, and an ordinary client of
the cluster.
"""
