"""The dashboard: the cluster as the rebalancer sees it, as pages and as JSON. It reads, and never writes.

Law: it imports `report`, `placement` and `serving` alone; what it asks of the rebalancer is a Protocol (`view.Index`).
"""
