"""The rebalancer's place: it will repair what admission cannot know (docs/design.md). Nothing is here yet."""
