"""The planners: each looks for one kind of work. `placement.plan.select` runs them in order, on one `Draft`.

reservations  gangs for which room is kept start, or give it back
losses        pods whose node is gone are deleted early, with proof
leaving       pods on nodes that will go are released
sweeps        moves that are under way are finished or undone
way_out       pods that find no node because of us are created again
successors    successors of pods that we evicted are marked
annotation    slots and what admission missed are written
moves         pods that should be elsewhere are moved, within all limits
remains       released pods that no workload of ours answers for are put back or ended
gangs         gangs that wait get room, all of their members at once

A planner is a function `plan(draft) -> Iterator[Action]`. It takes places from the draft's room, asks and charges the
draft's limits, and notes on the draft what it skips and why. A new kind of work is one more module here, one more
entry in `select.PLANNERS` and, where it does something new to a pod, one more `How`.
"""
