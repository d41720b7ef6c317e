"""Admission calls a second and their latency, against a plain Go webhook that makes the same patch."""
