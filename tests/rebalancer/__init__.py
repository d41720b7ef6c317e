"""Tests of `rebalancer`."""
