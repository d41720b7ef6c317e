"""Creating pods through a real API server: with nobody, with ours, with an in-tree policy that makes the same patch."""
