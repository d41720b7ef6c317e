"""The one set of builders of tests: plain functions, each with usual values that a test overrides by keyword.

`model` gives facts (pods, nodes, workloads …), `snapshots` whole clusters of them, `plan` what plans are made from, and
`api` objects and answers as they go over the wire. Two places have builders of their own, because they have another
aim: `benchmarks.synthetic` (scale) and `tests.recordings` (the same bytes in every version of the code).
"""
