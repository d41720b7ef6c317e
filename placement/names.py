"""Every name that Spotweave writes to, or reads from, the cluster: who writes it, who reads it, which values."""

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

# --- pods: written by the webhook at admission, rewritten by the rebalancer -----------------------------------------
# Label: the class the pod was given, `on-demand` or `spot`. Read by people, dashboards and status.
CLASS = PREFIX + "class"
# Annotation: the pod's index within its revision, "0", "1", … Read by the webhook (which slots are taken) and status.
SLOT = PREFIX + "slot"
# Annotation: "<controller uid>/<decision id>". It proves that the other annotations were made for this pod and not
# copied with a template. The id lets the webhook recognise a pod that it has decided on.
DECISION = PREFIX + "decision"
# Annotation: one sentence that says why the pod is where it is. Written for people.
REASON = PREFIX + "reason"
# Annotation "true": the class is preferred, not required; the pod may run on the other class and is to return.
SOFT = PREFIX + "soft"
# Annotation "true": the pod's own node selector or affinity excludes the class of its slot; nothing was injected.
LEFT_ALONE = PREFIX + "left-alone"
# Annotation "<until>/<hash>/<replicas>": until when the pod is released, the pod-template-hash to put back (design
# §4a), and how many replicas its ReplicaSet wanted then. Its slot is free. Written by the rebalancer when it releases a
# pod, removed when it undoes that; read by all. The version before wrote no replicas.
RELEASED = PREFIX + "released"
# What follows in it, after another slash, where the release wrote SAFE_TO_EVICT: the undo removes that again.
RELEASED_SAFE = "safe-to-evict"
# How the label pod-template-hash of a released pod begins: with the annotation, what tells that it is released.
RELEASED_HASH = "released-"
# Annotation "<class>/<policy>/<when>" on a replacement: the class that its predecessor was moved away from, and under
# which ratio and floor; "/<tries>" follows where evictions were in vain before. Written and read by the rebalancer: no
# pod goes back within the cool-down.
MOVED = PREFIX + "moved"
# Annotation "<tries>/<when>" on a pod whose move was undone: not tried again before then. The rebalancer's own.
UNDONE = PREFIX + "undone"
# All annotations that we alone write on pods. What people write themselves (`placement`, `pod-group`) is theirs.
POD_ANNOTATIONS = (DECISION, LEFT_ALONE, MOVED, REASON, RELEASED, SLOT, SOFT, UNDONE)

# --- names of Kubernetes itself ------------------------------------------------------------------------------------
# Annotation on pods of a ReplicaSet: on scale-down the lowest cost leaves first; we write -slot.
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# Label that a Deployment's controller puts on its ReplicaSets and their pods; tells the revisions apart.
POD_TEMPLATE_HASH = "pod-template-hash"
# The same for StatefulSets.
CONTROLLER_REVISION_HASH = "controller-revision-hash"
# Annotations by which people ask that a pod be left where it is: "false" and "true". Read by the rebalancer. Where it
# is absent, a release writes SAFE_TO_EVICT "true": Cluster Autoscaler takes no Deployment for a pod's controller.
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
# Pod condition that says that a pod is ended from outside, not by its own fault; read by Jobs and by people. The
# rebalancer writes it to pods whose Node is gone, with this reason, before it deletes them.
DISRUPTION_TARGET = "DisruptionTarget"
DISRUPTION_REASON = "DeletionBySpotweave"
# The reason that the API server writes there when somebody evicts a pod; read to tell a drain from a bare cordon.
EVICTED = "EvictionByEvictionAPI"
# Reason of the pod condition PodScheduled=False: the scheduler tried, and found no node. Any other means that it did
# not try, as for pods with a scheduling gate.
UNSCHEDULABLE = "Unschedulable"
# Annotation of static pods' mirrors: never touched.
MIRROR = "kubernetes.io/config.mirror"
# Taint of Cluster Autoscaler on nodes that it may take away, effect PreferNoSchedule; its value is a time. Never
# tolerated: such a node is a bad place for a new pod.
DELETION_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
# Taint of Cluster Autoscaler on nodes that it takes away, because there are too many. Such a node is leaving; its pods
# are not interrupted by the cloud. Read by the configuration's defaults and the rebalancer.
SCALED_DOWN = "ToBeDeletedByClusterAutoscaler"
# Node labels: where a node stands and what it is. Read to tell the pools apart, written into affinity and spread.
CAPACITY = "node.kubernetes.io/capacity"
ZONE = "topology.kubernetes.io/zone"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
REGION = "topology.kubernetes.io/region"
# Annotation on nodes, written by people or a price exporter: the price of this spot node as a share of the on-demand
# price, such as 0.31 or 31%. Read for savings.
PRICE_RATIO = PREFIX + "price-ratio"
HOSTNAME = "kubernetes.io/hostname"
NODE_NAME = "metadata.name"  # no label: the one field that a node selector may name

# Namespaces that are never placed, whatever their labels say; the webhook configuration leaves them out, too.
EXCLUDED_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "spotweave-system")

# --- our own objects -----------------------------------------------------------------------------------------------
SYSTEM_NAMESPACE = "spotweave-system"
WEBHOOK_CONFIGURATION = "spotweave"
WEBHOOK_ENTRY = "place.spotweave.dev"
WEBHOOK_SERVICE = "spotweave-webhook"
# The rebalancer's page; in front of all replicas, since any of them can tell.
DASHBOARD_SERVICE = "spotweave-dashboard"
WEBHOOK_PATH = "/mutate"
HAND_OVER_PATH = "/hand-over"  # asked by other replicas of the webhook alone
TLS_SECRET = "spotweave-webhook-tls"  # noqa: S105 - the name of the Secret, not a secret
CONFIG_MAP = "spotweave-config"
CONFIG_KEY = "config.yaml"
STATE_MAP = "spotweave-state"
LEASE = "spotweave-rebalancer"
OVERFLOW_PRIORITY = "spotweave-overflow"
# ValidatingAdmissionPolicies (and their bindings) that tell mistakes to who applies workloads and namespaces.
LINT_POLICY = "spotweave-lint"
LINT_NAMESPACES_POLICY = "spotweave-lint-namespaces"
# The one that limits what our own ServiceAccounts may write to pods.
FENCE_POLICY = "spotweave-fence"
WEBHOOK_ACCOUNT = "spotweave-webhook"
REBALANCER_ACCOUNT = "spotweave-rebalancer"
# ClusterRoles for people: who looks, and who pauses moves and notes outages. Errors of the command line name them.
VIEW_ROLE = "spotweave-view"
OPERATE_ROLE = "spotweave-operate"

# Annotation on a webhook replica's Lease: the version of the outages that it has read. Read by whoever notes one.
OUTAGE_VERSION = PREFIX + "outage-version"
# Label on our own objects, as recommended by Kubernetes; tells the webhook replicas' Leases.
COMPONENT = "app.kubernetes.io/component"
WEBHOOK_COMPONENT = "webhook"
REBALANCER_COMPONENT = "rebalancer"

# --- events --------------------------------------------------------------------------------------------------------
# Written by the webhook, on workloads; read by people (`kubectl describe`).
EVENT_CONTROLLER = PREFIX + "webhook"
EVENT_MISTAKE = "PolicyMistake"
EVENT_ACTION = "Place"
# Written by the rebalancer, on workloads: what it did to their pods, and what it cannot do and why.
EVENT_REBALANCER = PREFIX + "rebalancer"
EVENT_MOVE_ACTION = "Move"
EVENT_MOVED = "Moved"
EVENT_BLOCKED = "MoveBlocked"
# The same, of what befell them: pods run on the other class than theirs, and no more; replicas went with their nodes;
# the loss of a pool would leave fewer than a declared min-available, and no more.
EVENT_FALLBACK = "Fallback"
EVENT_FALLBACK_OVER = "FallbackOver"
EVENT_LOST = "ReplicasLost"
# The same, on the workload of the pod that shows it: a class is out, for whom, and the pod's name.
EVENT_OUTAGE = "CapacityOut"
EVENT_EXPOSED = "PoolLossNotSurvived"
EVENT_SAFE = "PoolLossSurvived"
# Reasons of others' Events, read by the rebalancer. The cloud's controller writes on a Node that its machine is gone.
SIGN_NODE_DELETED = "DeletingNode"
# Finalizers that hold a Node's deletion until its machine is gone (Karpenter's). Others hold it for other reasons.
TERMINATION_FINALIZERS = ("karpenter.sh/termination",)
# Cluster Autoscaler and Karpenter, one each, write on a pod that room for it is coming.
SIGN_SCALE_UP = "TriggeredScaleUp"
SIGN_NOMINATED = "Nominated"

# --- metrics -------------------------------------------------------------------------------------------------------
# What each one says, its labels and who writes it are in `metrics.METRICS`, which the programs and docs/metrics.md are
# made from; read by Prometheus, the rules and dashboards of manifests/monitoring. Counters get `_total` appended.
METRIC_DECISIONS = "spotweave_admission_decisions"
METRIC_FAIL_OPEN = "spotweave_admission_fail_open"
METRIC_ADMISSION_SECONDS = "spotweave_admission_seconds"
METRIC_FORWARDED = "spotweave_admission_forwarded"
METRIC_LEDGER = "spotweave_ledger_decisions"
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
METRIC_WORKLOADS_FAILING = "spotweave_workloads_failing"
METRIC_MOVES = "spotweave_moves"
METRIC_ACTIONS = "spotweave_actions"
METRIC_BLOCKED = "spotweave_blocked_pods"
METRIC_UNDER_WAY = "spotweave_moves_under_way"
METRIC_NODES = "spotweave_nodes"
METRIC_UTILISATION = "spotweave_node_utilisation"
METRIC_UNKNOWN_NODES = "spotweave_nodes_without_class"
RULE_SPOT_SHARE = "cluster:spotweave_spot_share:ratio"  # recorded by manifests/monitoring/rules.yaml, read by the page
