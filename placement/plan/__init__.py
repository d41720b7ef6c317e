"""The plan: what the rebalancer would do now, and what it leaves and why. Pure; `now` is passed in.

Read `assess` for one workload, then `select` for all of them together.

Facts
    ground        the nodes: class, pool, which of them leave and which take pods
    group         one workload with its pods, as they stand
    marks         what is written on pods that were released, moved or put back
    relations     which pods and revisions belong to which workload, and which workloads count
    remains       released pods that no workload of ours answers for
    room          what fits where: the one fit test
    search        places for pods that are alike
    stock         what is taken of nodes, by pods that are there and by pods that will be
    reach         which nodes a pod may use, by taints and node terms
    storage       which nodes can use its volumes
    neighbours    which nodes other pods leave open to a pod
    spread        in which domains one more pod keeps within the skew
    census        how many pods a selector selects, by node
    shortage      whether what was lost fits in what is left
    waiting       pods that will take room before anything else does
One workload
    assess        what to write, finish, undo and move
    reslot        which pod has which slot
    annotate      what is written on its pods
    replacement   the pod that takes another's place, as admission would make it
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
