"""The plan: what the rebalancer would do now, and what it leaves and why. Pure; `now` is passed in.

group      one workload with its pods, as they stand
reslot     which pod has which slot
note       what is written on its pods
assess     one workload: what is to be written, finished, undone, moved
room       what fits where
lost       nodes that are gone: outages, orphans
foresee    what would be in the way of the next rollout
choose     all workloads together: what is done now, within all limits
actions    the words in which all of them speak
"""
