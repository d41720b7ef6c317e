"""Tests of `webhook`: from the raw review to the served answer."""
