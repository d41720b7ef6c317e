"""The rebalancer: it repairs what admission cannot know (docs/design.md). One replica leads, the others look on.

Law: it does not import `webhook`.
"""
