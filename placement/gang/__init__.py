"""Gangs: pods that start together or not at all. Pure, as all of `placement`.

`terms` reads what members declare, `gang` derives a gang's state from its pods, `reservation` reads and writes the plan
that a pod carries. `placement.plan.planners.gangs` starts them, `placement.plan.planners.reservations` ends what was
begun. `evictable` and `services` list what may go for a gang, `victims` chooses among it, `claim` is the mark that
victims carry, and `placement.plan.planners.preemption` evicts them. `belonging` says which gang a pod belongs to,
`bare` and `podgroup` read what other tools declare, and `exclusive` is about nodes that a gang has for itself.
"""
