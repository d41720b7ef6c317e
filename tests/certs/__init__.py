"""Tests of `certs`: expiry is tested by asking about another date."""
