"""The rebalancer: it repairs what admission cannot know, and brings every replacement up first (docs/rebalancer.md).

One replica leads, the others look on.

Law: it does not import `webhook`.
"""
