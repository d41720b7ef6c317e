"""The plan: what the rebalancer would do now, and what it leaves and why. Pure; `now` is passed in.

group      one workload with its pods, as they stand
reslot     which pod has which slot
note       what is written on its pods
release    a pod is let go for a move, put back, or ended
crowd      pods that are too many in one pool
overflow   pods that keep the low priority of an outage
assess     one workload: what is to be written, finished, undone, moved
neighbours which nodes other pods leave open to a pod
room       what fits where
lost       nodes that are gone: outages, orphans
foresee    what would be in the way of the next rollout
scene      what a plan is made from
stuck      the way out: pods that find no node because of us, and the outages that they show
choose     all workloads together: what is done now, within all limits
actions    the words in which all of them speak
"""
