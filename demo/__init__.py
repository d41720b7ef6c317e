"""Shows Spotweave on a local control plane: a supervisor that installs and runs it, and the steps of the demo."""
