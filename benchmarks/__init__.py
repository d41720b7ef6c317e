"""Benchmarks: side by side in one run, interleaved, as ratios; tables for people and JSON in out/bench/."""
