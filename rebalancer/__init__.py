"""The rebalancer: it repairs what admission cannot know, and brings every replacement up first (docs/rebalancer.md).

Law: it does not import `webhook`.
"""
