"""Decides where pods belong. Pure: standard library only, no I/O, no clock, no logging.

Facts come in and decisions go out as frozen dataclasses; the caller carries them out. Two walks lead through all of it.

Admission, in 30 minutes: one pod is created, and gets a class.

1. `names`: every label, annotation and object that we write or read, with who writes and who reads it.
2. `model`: the facts. `Workload`, `ReplicaSet`, `Pod` and `Node`; `Class` and `Pool`. Skim the rest.
3. `slots`: the one idea behind the mix. Check the example with pencil and paper: slots 0…9 are O S S O S S O S S S.
4. `policy`: what a team asked for. `resolve` reads annotations level by level; mistakes are listed, never raised.
5. `intent`: policy, `auto` and availability come together. `intent_of` is where admission, plan and status begin.
6. `revision` and `clusterstate`: what a decision rests on beside the pod: its owner, and pools, classes and outages.
7. `decide`: `decide` gives class, reason and injection for one slot. `Case` holds what pods of one kind share.
8. `inject`: what goes into the spec: affinity, tolerations, spreading, priority. `pools`: which pool a slot prefers.
9. `patch`: the decision as JSON patch. Read why the patch is never written by hand.
10. `webhook.admission`, outside this package: `Admission.place` calls all of that, in this order, for each review.

The plan, in another 30 minutes: all workloads are compared with what they should have, and pods are moved.

1. `plan.actions`: the words: `Action`, `How` it is done, `Why`, and why not (`Blocked`).
2. `plan.group`: one workload with its pods, as they stand.
3. `plan.reslot` and `plan.annotate`: slots are written first, so that as few pods as possible have to move.
4. `plan.assess`: one workload alone: what it wants, and what stands in the way. `plan.ends`: which moves end now.
5. `plan.release`: a move brings the replacement first. How it begins and ends, as actions.
6. `plan.scene` and `plan.room`: what a plan is made from, and what fits where.
7. `plan.draft` and `plan.limits`: what planners share while they work: the room, and how much may be under way.
8. `plan.planners`: one module for each kind of work. The package lists them; read `moves` first.
9. `plan.select`: runs the planners in their order of precedence. What they leave is listed, with the reason.
10. `rebalancer.loop`, outside this package: `Loop.once` feeds the plan and carries it out.
"""
