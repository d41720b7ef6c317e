"""Every name that Spotweave writes to, or reads from, the cluster: its writer, its readers and its values."""

PREFIX = "spotweave.dev/"

# --- opting in and out -------------------------------------------------------------------------------------------
# Label on namespaces, written by people: `enabled` opts the namespace in. On a pod template (label) or a workload
# (label or annotation) `disabled` opts that workload out. Read by the webhook configuration, webhook and status.
PLACEMENT = PREFIX + "placement"
ENABLED = "enabled"
DISABLED = "disabled"

# --- policy: annotations of Deployments, StatefulSets and (as defaults) Namespaces; written by people ---------------
# Values and defaults are in `policy.SETTINGS`, which the parser and the documentation are made from.
SPOT_RATIO = PREFIX + "spot-ratio"
MIN_ON_DEMAND = PREFIX + "min-on-demand"
MIN_AVAILABLE = PREFIX + "min-available"
AVAILABILITY_TARGET = PREFIX + "availability-target"
SPOT_FALLBACK = PREFIX + "spot-fallback"
SPOT_FALLBACK_AFTER = PREFIX + "spot-fallback-after"
ON_DEMAND_FALLBACK = PREFIX + "on-demand-fallback"
SPREAD = PREFIX + "spread"
REBALANCE = PREFIX + "rebalance"
REBALANCE_WINDOW = PREFIX + "rebalance-window"
REPLACE_LOST_PODS = PREFIX + "replace-lost-pods"
EVICTION_HOLD = PREFIX + "eviction-hold"

# --- pods: written by the webhook at admission, rewritten by the rebalancer -----------------------------------------
# Label: the class the pod was given, `on-demand` or `spot`. Read by people, dashboards and status. The spread
# constraints that admission injects select by it.
CLASS = PREFIX + "class"
# Annotation: the pod's index within its revision, "0", "1", … Read by the webhook (which slots are taken) and status.
SLOT = PREFIX + "slot"
# Annotation: "<controller uid>/<decision id>". It proves that the other annotations were made for this pod and not
# copied with a template. The id lets the webhook recognise a pod that it has decided on.
DECISION = PREFIX + "decision"
# Annotation: one sentence that says why the pod is where it is. Written for people.
REASON = PREFIX + "reason"
# Annotation "true": the class is preferred, not required; the pod may run on the other class and should return.
SOFT = PREFIX + "soft"
# Annotation "true": the pod's own node selector or affinity excludes the class of its slot; nothing was injected.
LEFT_ALONE = PREFIX + "left-alone"
# Annotation "<until>/<hash>/<replicas>": until when the pod is released, the pod-template-hash to put back (design
# §4a), and how many replicas its ReplicaSet wanted then. Its slot is free. Written by the rebalancer when it releases a
# pod, removed when it undoes that; read by all. The version before wrote no replicas.
RELEASED = PREFIX + "released"
# Appended to it, after another slash, if the release wrote SAFE_TO_EVICT: the undo removes that again.
RELEASED_SAFE = "safe-to-evict"
# Appended in the same way if the release wrote DO_NOT_DISRUPT.
RELEASED_SPARED = "do-not-disrupt"
# Prefix of the label pod-template-hash of a released pod. Together with the annotation it marks the pod as released.
RELEASED_HASH = "released-"
# Annotation "<class>/<policy>/<when>" on a replacement: the class that its predecessor was moved away from, and under
# which ratio and floor; "/<tries>" follows if earlier evictions did not help. Written and read by the rebalancer: no
# pod goes back within the cool-down.
MOVED = PREFIX + "moved"
# Annotation "<tries>/<when>" on a pod whose move was undone: not tried again before then. The rebalancer's own.
UNDONE = PREFIX + "undone"
# Annotation "<when>/<user>": when the pod's eviction was first asked for by others, and by whom. Written by the webhook
# that was asked first, once for each pod; read by all. The rebalancer releases the pod when it sees it, and removes the
# note ten minutes after the hold, if the pod is still there.
EVICTION_ASKED = PREFIX + "eviction-asked"
# Annotation "<namespace>/<gang>/<plan id>/<number>" on a pod that is to make room for a gang: for which, by which plan,
# one of how many. Written by the rebalancer before it evicts any of them, removed when the pod need not go.
PREEMPTED_BY = PREFIX + "preempted-by"
# All annotations that only we write on pods. Those that people write (`placement`, `pod-group`) are not listed.
POD_ANNOTATIONS = (DECISION, EVICTION_ASKED, LEFT_ALONE, MOVED, PREEMPTED_BY, REASON, RELEASED, SLOT, SOFT, UNDONE)

# --- gangs: annotations of pod templates, written by people; values and defaults are in `placement.gang.terms` --------
# Pods of one namespace with the same name start together or not at all.
POD_GROUP = PREFIX + "pod-group"
POD_GROUP_MIN_MEMBER = PREFIX + "pod-group-min-member"
POD_GROUP_SIZE = PREFIX + "pod-group-size"
POD_GROUP_WAIT_TIMEOUT = PREFIX + "pod-group-wait-timeout"
POD_GROUP_CLASS = PREFIX + "pod-group-class"
EXPECTED_RUNTIME = PREFIX + "expected-runtime"
TIME_LIMIT = PREFIX + "time-limit"
ON_PARTIAL_FAILURE = PREFIX + "on-partial-failure"
EXCLUSIVE_NODE = PREFIX + "exclusive-node"
PREEMPTIBLE = PREFIX + "preemptible"
PRIORITY = PREFIX + "priority"
# Label of pod templates by which the coscheduling plugin knows members, written by people: the name of their PodGroup
# object. Read where POD_GROUP is absent. The rebalancer writes the status of PodGroups.
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
# The same without a prefix, written by people for other schedulers. Where that is switched on, admission copies them to
# POD_GROUP and PRIORITY.
BARE_POD_GROUPS = ("pod-group", "pod_group")
BARE_PRIORITY = "priority"
# Scheduling gate and label of members. The MutatingAdmissionPolicy below adds both when a member is created; the
# rebalancer takes the gate off when the whole gang has room. The label selects members, for webhooks and people.
GANG_GATE = PREFIX + "gang"
GANG_LABEL = PREFIX + "gang"
GANG_MEMBER = "member"
# Taint of nodes that nobody but a gang may use, effect NoSchedule; its value stands for the gang. Written by the
# rebalancer, tolerated by members, since admission says so. Another reader is the scheduler.
EXCLUSIVE_TAINT = PREFIX + "exclusive"
# Annotation "<plan id>/<unix time>/<node>" on a member: the plan that reserves room for it, when that was written, and
# on which node. Written by the rebalancer together with `status.nominatedNodeName`. It stays when the member starts.
# `placement.gang.reservation` says what else it may carry.
GANG_PLAN = PREFIX + "gang-plan"
# Annotation "<run>/<unix time>/<number>/<restarts>" on a member that has started: which run of the gang, since when,
# with how many members, after how many restarts in a row. Written by the rebalancer with the start; read to see what
# was lost, and by time-limit. `placement.gang.run` says what else it may carry.
GANG_RUN = PREFIX + "gang-run"
# Annotation "<unix time>/<node>" on all members of a gang: that node will go, and since when that is known. Written by
# the rebalancer; read by people and by programs in the pods.
GANG_NOTICE = PREFIX + "gang-notice"
# Annotation "<unix time>/<why>" on one gated member: its gang has failed, and waits until it is removed, or that pod is
# deleted. Written by the rebalancer, removed by people.
GANG_FAILED = PREFIX + "gang-failed"
# Label on PriorityClasses that the rebalancer makes: the class with the same value, without `preemptionPolicy: Never`.
TWIN_OF = PREFIX + "twin-of"

# --- names of Kubernetes itself ------------------------------------------------------------------------------------
# Annotation on pods of a ReplicaSet: on scale-down the lowest cost leaves first; we write -slot.
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# Label that a Deployment's controller puts on its ReplicaSets and their pods. It distinguishes revisions.
POD_TEMPLATE_HASH = "pod-template-hash"
# Annotation that the same controller writes on Deployments: the number of the latest revision, from 1. Read by us.
REVISION = "deployment.kubernetes.io/revision"
# Type and reason of the condition by which it says that a rollout has ended, and when. Read by us.
ROLLOUT_ENDED = ("Progressing", "NewReplicaSetAvailable")
# Label that a StatefulSet's controller puts on pods. It distinguishes revisions.
CONTROLLER_REVISION_HASH = "controller-revision-hash"
# Annotations by which people keep a pod where it is: "false" and "true". Read by the rebalancer. If the first is
# absent, a release writes SAFE_TO_EVICT "true", because Cluster Autoscaler knows no Deployment as a pod's controller.
# If the second is absent, a release from a node that Karpenter removes writes for how long after the pod's start
# Karpenter is to leave it alone, such as "185s": meanwhile Karpenter buys no node for it, only for its replacement.
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
# Pod condition: the pod is terminated from outside, not because of an error of its own; read by Jobs and people. The
# rebalancer writes it to pods whose Node is gone, with this reason, before it deletes them.
DISRUPTION_TARGET = "DisruptionTarget"
DISRUPTION_REASON = "DeletionBySpotweave"
# The reason that the API server writes there when a pod is evicted; read to distinguish a drain from a bare cordon.
EVICTED = "EvictionByEvictionAPI"
# The reason that the scheduler writes there: it deletes the pod, because one of higher priority needs the room.
PREEMPTED = "PreemptionByScheduler"
# Reason of the pod condition PodScheduled=False: the scheduler tried and found no node. Any other reason means that
# it did not try, as for pods with a scheduling gate.
UNSCHEDULABLE = "Unschedulable"
# Annotation of static pods' mirrors: never touched.
MIRROR = "kubernetes.io/config.mirror"
# Taint of Cluster Autoscaler on nodes that it may remove, effect PreferNoSchedule; its value is a time. Never
# tolerated: such a node is a bad place for a new pod.
DELETION_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
# Taint of Cluster Autoscaler on nodes that it removes because there are too many. Such a node is leaving, but its
# pods are not interrupted by the cloud. Read by the configuration's defaults and the rebalancer.
SCALED_DOWN = "ToBeDeletedByClusterAutoscaler"
# Taint of Karpenter on nodes that it removes, by its own plan or because the cloud takes them: see `is_announced`.
# Such a node is leaving once it is being deleted. Read by the configuration's defaults and the rebalancer.
DISRUPTED = "karpenter.sh/disrupted"
# Node labels: the place and type of a node. Read to distinguish pools, written into affinity and spread.
CAPACITY = "node.kubernetes.io/capacity"
ZONE = "topology.kubernetes.io/zone"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
REGION = "topology.kubernetes.io/region"
# The same before Kubernetes 1.17; old volumes still carry them.
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
VOLUME_ZONES = (ZONE, REGION, OLD_ZONE, OLD_REGION)
# Annotation on claims, written by Kubernetes' volume controller: the claim and its volume belong to each other.
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
# Annotation on nodes, written by people or a price exporter: the price of this spot node as a share of the on-demand
# price, such as 0.31 or 31%. Read for savings.
PRICE_RATIO = PREFIX + "price-ratio"
HOSTNAME = "kubernetes.io/hostname"
NODE_NAME = "metadata.name"  # not a label: the one field that a node selector may name

# Namespaces that are never placed, whatever their labels say; the webhook configuration leaves them out, too.
EXCLUDED_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "spotweave-system")

# --- our own objects -----------------------------------------------------------------------------------------------
SYSTEM_NAMESPACE = "spotweave-system"
WEBHOOK_CONFIGURATION = "spotweave"
WEBHOOK_ENTRY = "place.spotweave.dev"
EVICTION_ENTRY = "evict.spotweave.dev"  # of the ValidatingWebhookConfiguration, which has the same name
WEBHOOK_SERVICE = "spotweave-webhook"
# The rebalancer's page. The Service covers all replicas, since each of them can serve it.
DASHBOARD_SERVICE = "spotweave-dashboard"
WEBHOOK_PATH = "/mutate"
EVICTION_PATH = "/evict"
HAND_OVER_PATH = "/hand-over"  # called only by other webhook replicas
TLS_SECRET = "spotweave-webhook-tls"  # noqa: S105 - the name of the Secret, not a secret
CONFIG_MAP = "spotweave-config"
CONFIG_KEY = "config.yaml"
STATE_MAP = "spotweave-state"
LEASE = "spotweave-rebalancer"
OVERFLOW_PRIORITY = "spotweave-overflow"
# Adds gate and label to members of gangs, inside the API server; installed with gangs only, like the webhook entry.
GANG_POLICY = "spotweave-gang"
# The same for annotations without a prefix; installed with a component of its own.
GANG_BARE_POLICY = "spotweave-gang-bare"
GANG_ENTRY = "gang.spotweave.dev"
GANG_PATH = "/gang"
GATE_ENTRY = "gate.spotweave.dev"  # before Kubernetes 1.36, in place of the policy
GATE_PATH = "/gate"
BARE_ENTRY = "bare.spotweave.dev"  # the same with annotations without a prefix
TWIN_PREFIX = "spotweave-never-"  # of the names of PriorityClasses that the rebalancer makes for members
# ValidatingAdmissionPolicies (and their bindings) that warn people who apply workloads and namespaces about mistakes.
LINT_POLICY = "spotweave-lint"
LINT_NAMESPACES_POLICY = "spotweave-lint-namespaces"
LINT_GANGS_POLICY = "spotweave-lint-gangs"  # about pod templates, those of Jobs too
# Those that limit what our own ServiceAccounts may write: to pods, in our own namespace, to webhook configurations.
FENCE_POLICY = "spotweave-fence"
SYSTEM_FENCE_POLICY = "spotweave-fence-system"
CONFIGURATION_FENCE_POLICY = "spotweave-fence-configuration"
TWIN_FENCE_POLICY = "spotweave-fence-twins"  # with gangs: what they may write of PriorityClasses
NODE_FENCE_POLICY = "spotweave-fence-nodes"  # the same of nodes: the taint of exclusive gangs
POD_GROUP_FENCE_POLICY = "spotweave-fence-podgroups"  # the same of PodGroups: their status
JOB_FENCE_POLICY = "spotweave-fence-jobs"  # with gangs: what they may write of Jobs and JobSets
WEBHOOK_ACCOUNT = "spotweave-webhook"
REBALANCER_ACCOUNT = "spotweave-rebalancer"
# For people: a ClusterRole to look, and a Role to pause moves and note outages. Errors of the command line name them.
VIEW_ROLE = "spotweave-view"
VIEW_GANGS_ROLE = "spotweave-view-gangs"  # what the queue of gangs needs besides; installed with gangs only
OPERATE_ROLE = "spotweave-operate"

# Annotation on a webhook replica's Lease: the version of the outages that it has read. Read when an outage is noted.
OUTAGE_VERSION = PREFIX + "outage-version"
# Label on our own objects, as recommended by Kubernetes. It identifies the Leases of webhook replicas.
COMPONENT = "app.kubernetes.io/component"
WEBHOOK_COMPONENT = "webhook"
REBALANCER_COMPONENT = "rebalancer"

# --- events --------------------------------------------------------------------------------------------------------
# Written by the webhook, on workloads; read by people (`kubectl describe`).
EVENT_CONTROLLER = PREFIX + "webhook"
EVENT_MISTAKE = "PolicyMistake"
EVENT_ACTION = "Place"
# The same: another policy or a quota refuses pods with our patch, so they are created without it. Also read by the
# rebalancer, which does not move such a workload for a while.
EVENT_REFUSED = "PatchRefused"
# Written by the rebalancer, on workloads: what it did to their pods, and what it cannot do and why.
EVENT_REBALANCER = PREFIX + "rebalancer"
EVENT_MOVE_ACTION = "Move"
EVENT_MOVED = "Moved"
EVENT_BLOCKED = "MoveBlocked"
# The same, about what happened to them: pods run on the other class, or no longer do; replicas were lost with their
# nodes; the loss of a pool would leave fewer than a declared min-available, or no longer would.
EVENT_FALLBACK = "Fallback"
EVENT_FALLBACK_OVER = "FallbackOver"
EVENT_LOST = "ReplicasLost"
# The same, on the workload of the pod that is the evidence: a class is out, for which pods, and the pod's name.
EVENT_OUTAGE = "CapacityOut"
EVENT_EXPOSED = "PoolLossNotSurvived"
EVENT_SAFE = "PoolLossSurvived"
# The same, once per pod: somebody else evicts it, and the eviction waits until enough others serve.
EVENT_HELD = "EvictionHeld"
# The same, on what owns the members of a gang: it waits for room or members; it cannot start until somebody changes
# something; all members have a node; a start was undone; it waits for longer than its wait-timeout; an annotation is
# invalid; a member was lost, and what is done about it; a node of it will go; it has failed; its time limit is near, or
# over.
EVENT_GANG_WAITING = "GangWaiting"
EVENT_GANG_BLOCKED = "GangBlocked"
EVENT_GANG_STARTED = "GangStarted"
EVENT_GANG_UNDONE = "GangRolledBack"
EVENT_GANG_LATE = "GangLate"
EVENT_GANG_MISTAKE = "GangMistake"
EVENT_GANG_LOST = "GangMemberLost"
EVENT_GANG_NOTICE = "GangNodeLeaving"
EVENT_GANG_FAILED = "GangFailed"
EVENT_GANG_LIMIT = "GangTimeLimit"
# The same: pods are evicted to make room for a gang; on the gang, and on what owns the pods.
EVENT_GANG_PREEMPTING = "GangPreempting"
EVENT_GANG_PREEMPTED = "GangPreempted"
# Reasons of Events by others, read by the rebalancer. The cloud controller reports that a Node lost its machine.
SIGN_NODE_DELETED = "DeletingNode"
# Karpenter reports on a Node that it removes it by its own plan: it is empty, underutilized or has drifted.
SIGN_PLANNED = "DisruptionTerminating"
# Finalizers that hold a Node's deletion until its machine is gone (Karpenter's). Others hold it for other reasons.
TERMINATION_FINALIZERS = ("karpenter.sh/termination",)
# Cluster Autoscaler and Karpenter, one each, report on a pod that they are adding room for it.
SIGN_SCALE_UP = "TriggeredScaleUp"
SIGN_NOMINATED = "Nominated"
# The same two report on a pod that they can add no room for it. Kubernetes' scheduler uses Karpenter's word, too, so
# only Karpenter's own Events are read.
SIGN_NO_SCALE_UP = "NotTriggerScaleUp"
SIGN_UNSCHEDULED = "FailedScheduling"
# Kubernetes' scheduler reports on a pod that it deletes it, and for which other pod.
SIGN_PREEMPTED = "Preempted"

# --- metrics -------------------------------------------------------------------------------------------------------
# What each one says, its labels and who writes it are in `metrics.METRICS`, which the programs and docs/metrics.md are
# made from; read by Prometheus, the rules and dashboards of manifests/monitoring. Counters get `_total` appended.
METRIC_DECISIONS = "spotweave_admission_decisions"
METRIC_FAIL_OPEN = "spotweave_admission_fail_open"
METRIC_ADMISSION_SECONDS = "spotweave_admission_seconds"
METRIC_FORWARDED = "spotweave_admission_forwarded"
METRIC_LEDGER = "spotweave_ledger_decisions"
METRIC_REFUSED = "spotweave_patch_refused"
METRIC_EVICTIONS = "spotweave_eviction_reviews"
METRIC_OUTAGES = "spotweave_outages"
METRIC_OUTAGE_VERSION = "spotweave_outage_version"
METRIC_CACHE_AGE = "spotweave_cache_age_seconds"
METRIC_CERTIFICATE_EXPIRY = "spotweave_certificate_expiry_timestamp_seconds"
METRIC_POLICY_MISTAKES = "spotweave_policy_mistakes"
METRIC_LEADING = "spotweave_rebalancer_leading"
METRIC_PASS_SECONDS = "spotweave_pass_seconds"  # noqa: S105 - a pass of the loop, no password
METRIC_PLAN_SECONDS = "spotweave_plan_seconds"
METRIC_PAUSED = "spotweave_paused"
METRIC_WORKLOAD_PODS = "spotweave_workload_pods"
METRIC_WORKLOAD_WANTED = "spotweave_workload_wanted"
METRIC_SPOT_SHARE = "spotweave_workload_spot_share"
METRIC_HEADROOM = "spotweave_workload_headroom"
METRIC_FLOOR = "spotweave_workload_min_on_demand"
METRIC_BLAST_RADIUS = "spotweave_blast_radius"
METRIC_SURVIVES = "spotweave_survives"
METRIC_INCIDENTS = "spotweave_expected_incidents_per_month"
METRIC_UNAVAILABILITY = "spotweave_expected_unavailability"
METRIC_POOL_LOSSES = "spotweave_pool_losses_per_month"
METRIC_POOL_WATCHED = "spotweave_pool_watched_seconds"
METRIC_WORKLOADS_LEFT_OUT = "spotweave_workloads_left_out"
METRIC_SKIPPED = "spotweave_skipped_pods"
METRIC_WORKLOADS_FAILING = "spotweave_workloads_failing"
METRIC_MOVES = "spotweave_moves"
METRIC_ACTIONS = "spotweave_actions"
METRIC_BLOCKED = "spotweave_blocked_pods"
METRIC_UNDER_WAY = "spotweave_moves_under_way"
METRIC_EVICTIONS_HELD = "spotweave_evictions_held"
METRIC_GANGS = "spotweave_gangs"
METRIC_GANG_STARTS = "spotweave_gang_starts"
METRIC_GANGS_LATE = "spotweave_gangs_late"
METRIC_GANG_ATTEMPTS = "spotweave_gang_attempts"
METRIC_GANG_FAILURES = "spotweave_gang_failures"
METRIC_GATED_PODS = "spotweave_gated_pods"
METRIC_GATES_LEFT = "spotweave_gates_left_behind"
METRIC_GANG_PREEMPTIONS = "spotweave_gang_preemptions"
METRIC_GANG_VICTIMS = "spotweave_gang_victims"
METRIC_GANG_SECONDS = "spotweave_gang_start_seconds"
METRIC_NODES = "spotweave_nodes"
METRIC_UTILISATION = "spotweave_node_utilisation"
METRIC_UNKNOWN_NODES = "spotweave_nodes_without_class"
RULE_SPOT_SHARE = "cluster:spotweave_spot_share:ratio"  # recorded by manifests/monitoring/rules.yaml, read by the page
