"""Forms in which schedulers run inspections: scripts and manifests for a site to adapt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["FORMS"]

_HEALTH = """\
#!/bin/sh
# HealthCheckProgram of Slurm. In slurm.conf:
#   HealthCheckProgram=/etc/slurm/forewarn-health
#   HealthCheckInterval=300
#   HealthCheckNodeState=ANY,CYCLE   (CYCLE: not on all nodes at once)
# Results are findings of `respond`, which drains within its limits; this program drains nothing.
PATH=/opt/forewarn/bin:$PATH # Slurm sets no search path
export PATH
timeout 50 forewarn inspect run --set quick --while-busy --nagios \\
    --machine "$(hostname -s)" --out /var/lib/forewarn/inspections 2>&1 | logger -t forewarn-health
exit 0
"""

_PROLOG = """\
#!/bin/sh
# Prolog of Slurm (slurm.conf: Prolog=/etc/slurm/forewarn-prolog, PrologFlags=Alloc), 8 s at most.
# A prolog that fails drains its node with "Prolog error", and a program of ours that is broken
# would empty the cluster. So this one fails only if the agent has just reported damage.
PATH=/opt/forewarn/bin:$PATH # Slurm sets no search path
export PATH
timeout 2 forewarn ready --machine "$SLURMD_NODENAME" --for prolog
[ $? -eq 1 ] && exit 1 # 124: too slow, which says nothing about the machine
timeout 6 forewarn inspect run --set quick --timeout 4s --while-busy --nagios \\
    --machine "$SLURMD_NODENAME" --out /var/lib/forewarn/inspections 2>&1 |
    logger -t forewarn-prolog
exit 0
"""

_EPILOG = """\
#!/bin/sh
# Epilog of Slurm (slurm.conf: Epilog=/etc/slurm/forewarn-epilog), 8 s at most; never fails.
PATH=/opt/forewarn/bin:$PATH # Slurm sets no search path
export PATH
timeout 8 forewarn inspect run --set quick --timeout 6s --while-busy --nagios \\
    --machine "$SLURMD_NODENAME" --out /var/lib/forewarn/inspections 2>&1 |
    logger -t forewarn-epilog
exit 0
"""

_SLURM_JOB = """\
#!/bin/sh
# An inspection that yields to every other job, and goes on after it. In slurm.conf (restart
# slurmctld after the change; partitions of other jobs have PriorityTier=1 unless configured):
#   PreemptType=preempt/partition_prio
#   PreemptMode=REQUEUE
#   PartitionName=inspection Nodes=ALL PriorityTier=0 PreemptMode=REQUEUE MaxTime=2:00:00
# Submit one for each line of the plan:
#   forewarn inspect plan --at-risk lists --json | jq -r '.lines[].machine' |
#       xargs -n 1 -I {} sbatch --nodelist={} forewarn-inspection.sh
#SBATCH --partition=inspection
#SBATCH --job-name=forewarn-inspection
#SBATCH --nodes=1 --exclusive
#SBATCH --time=2:00:00
#SBATCH --requeue
exec /opt/forewarn/bin/forewarn inspect run --set weekly --timeout 110min \\
    --machine "$SLURMD_NODENAME" --out /shared/forewarn/inspections
"""

_KUBERNETES_JOB = """\
# An inspection of one node that yields to every other pod. Replace NODE, and the number of GPUs:
# the Job needs all of them, so that a pod that needs one takes its place. The next pod of the Job
# goes on.
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: forewarn-inspection
value: -1000
preemptionPolicy: Never
description: Inspections of forewarn, which yield to every other pod.
---
apiVersion: batch/v1
kind: Job
metadata:
  name: forewarn-inspection-NODE
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 7200
  ttlSecondsAfterFinished: 86400
  template:
    spec:
      restartPolicy: Never
      priorityClassName: forewarn-inspection
      nodeSelector:
        kubernetes.io/hostname: NODE
      tolerations:
        - {key: nvidia.com/gpu, operator: Exists}
      containers:
        - name: inspect
          image: forewarn:0.1.0
          command: [forewarn, inspect, run, --set, weekly, --machine, NODE, --out, /inspections]
          resources:
            limits: {nvidia.com/gpu: "8"}
          volumeMounts:
            - {name: inspections, mountPath: /inspections}
      volumes:
        - name: inspections
          hostPath: {path: /var/lib/forewarn/inspections, type: DirectoryOrCreate}
"""

_KUBERNETES_DAEMONSET = """\
# The quick set on every node, once a day.
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: forewarn-inspection
spec:
  selector:
    matchLabels: {app: forewarn-inspection}
  updateStrategy:
    rollingUpdate: {maxUnavailable: 10%}
  template:
    metadata:
      labels: {app: forewarn-inspection}
    spec:
      tolerations:
        - {operator: Exists}
      containers:
        - name: inspect
          image: forewarn:0.1.0
          command:
            - sh
            - -c
            - >-
              while :; do
              forewarn inspect run --set quick --while-busy --machine "$NODE" --out /inspections;
              sleep 86400; done
          env:
            - name: NODE
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
          resources:
            requests: {cpu: 10m, memory: 64Mi}
          volumeMounts:
            - {name: inspections, mountPath: /inspections}
      volumes:
        - name: inspections
          hostPath: {path: /var/lib/forewarn/inspections, type: DirectoryOrCreate}
"""

_NODE_CONDITION = """\
{
  "plugin": "custom",
  "pluginConfig": {"invoke_interval": "1h", "timeout": "2m", "concurrency": 1},
  "source": "forewarn",
  "conditions": [
    {
      "type": "ForewarnInspectionFailed",
      "reason": "InspectionPassed",
      "message": "the quick inspection passed"
    }
  ],
  "rules": [
    {
      "type": "permanent",
      "condition": "ForewarnInspectionFailed",
      "reason": "InspectionFailed",
      "path": "/bin/sh",
      "args": [
        "-c",
        "forewarn inspect run --set quick --while-busy --nagios \
--machine $NODE_NAME --out /inspections; [ $? -ne 2 ]"
      ]
    }
  ]
}
"""

FORMS: Final[Mapping[str, str]] = {
    "slurm-health": _HEALTH,
    "slurm-prolog": _PROLOG,
    "slurm-epilog": _EPILOG,
    "slurm-job": _SLURM_JOB,
    "kubernetes-job": _KUBERNETES_JOB,
    "kubernetes-daemonset": _KUBERNETES_DAEMONSET,
    "node-condition": _NODE_CONDITION,
}
"""Text by name; `node-condition` is a plug-in of node-problem-detector, whose own manifest sets
NODE_NAME."""
