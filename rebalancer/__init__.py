"""The rebalancer: it repairs what admission cannot know (docs/design.md). So far it elects who leads, and does nothing.

Law: it does not import `webhook`.
"""
