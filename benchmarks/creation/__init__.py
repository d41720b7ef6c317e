"""Creating pods through a real API server: without admission, with ours, with an in-tree policy and the same patch."""
