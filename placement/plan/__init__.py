"""The plan: what the rebalancer would do now, and what it leaves and why. Pure; `now` is passed in.

Read `assess` for one workload, then `select` for all of them together.

Facts
    group         one workload with its pods, as they stand
    relations     which pods and revisions belong to which workload, and which workloads count
    remains       released pods that no workload of ours answers for
    neighbours    which nodes other pods leave open to a pod
    reach         which nodes a pod may use, by taints and node terms
    room          what fits where
    shortage      whether what was lost fits in what is left
    waiting       pods that will take room before anything else does
One workload
    assess        what is to be written, finished, undone, moved
    reslot        which pod has which slot
    annotate      what is written on its pods
    crowd         pods that are too many in one pool
    overflow      pods that keep the low priority of an outage
    release       a pod is let go for a move, put back, or ended: the actions
    ends          which moves that are under way end now, and how
All workloads together
    scene         what a plan is made from
    select        the planners, in order, and the plan that they make
    draft         what planners share: one room, one set of limits, one record of what was skipped
    limits        how much may be under way at once
    breaker       stops moves that do not help
    begin         how a move begins
    losses        nodes that are gone: proof, outages, burials
    interruption  what counts as an interruption of a pool
    stuck         the way out: pods that find no node because of us, and the outages that they show
    planners/     one module for each kind of work
    actions       the words in which all of them speak
"""
