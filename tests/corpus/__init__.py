"""Applications as people publish them, in manifests of our own, and what is needed to run them with and without us."""
