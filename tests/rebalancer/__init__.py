"""The rebalancer, on a simulated cluster with a clock of its own."""
