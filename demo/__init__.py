"""Shows the product on a local control plane: a supervisor that installs and runs it, and the demo's story."""
