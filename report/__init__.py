"""What people are shown: status, exposure, savings, drills, history, and their JSON. Pure, as `placement` is.

Law: it imports `placement` alone (and msgspec, for JSON); it decides nothing and knows no clock. Read in this order:
`exposure` (what a workload would lose with a node, a pool or a zone), `status` (what is wanted and what is there),
`view` (the whole cluster as of one moment), `answers` (the page's JSON), `whatif` (what a loss or another ratio
would do).
"""
