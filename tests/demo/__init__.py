"""Tests of `demo`."""
