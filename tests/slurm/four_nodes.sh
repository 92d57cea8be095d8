#!/bin/bash
# Starts a SLURM of four nodes (n1 to n4, 4 processors each) on this machine and runs COMMAND with it:
#
#   unshare --mount --pid --net --fork --kill-child --mount-proc tests/slurm/four_nodes.sh COMMAND...
#
# Nothing is left when that ends, not a process, not a port, not a file: what SLURM writes is in memory, below
# /run/lockstep-slurm, which only these namespaces see. SLURM_CONF leads the tools to it. Partition main is the
# default; jobs in low make room for those in main, after 3 s.
set -euo pipefail
[ "$$" = 1 ] || { echo "four_nodes: start it by unshare, as its first lines say" >&2; exit 1; }
folder=/run/lockstep-slurm
for program in slurmctld slurmd sbatch munged munge ip; do
  command -v "$program" > /dev/null || { echo "four_nodes: $program is missing: apt-get install slurm-wlm munge iproute2" >&2; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "four_nodes: needs root" >&2; exit 1; }

# SLURM looks for an address that is not 127.0.0.1 before it listens.
ip link set lo up
ip address add 10.77.0.1/32 dev lo
mount -t tmpfs -o mode=0755 none /run
mkdir -p "$folder"/{munge,state,run,log}
chmod 0700 "$folder/munge"
dd if=/dev/urandom of="$folder/munge/key" bs=1 count=1024 2> /dev/null
chmod 0400 "$folder/munge/key"
munged --force --key-file="$folder/munge/key" --socket="$folder/run/munge.socket" --pid-file="$folder/run/munged.pid" \
  --log-file="$folder/log/munged.log" --seed-file="$folder/munge/seed"

host=$(hostname -s)
export SLURM_CONF="$folder/slurm.conf"
cat > "$SLURM_CONF" << CONF
ClusterName=lockstep
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge.socket,cred_expire=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,requeue_delay=1
ReturnToService=2
SlurmctldPort=16817
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd-%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd-%n.log
SlurmdTimeout=5
KillWait=5
MinJobAge=300
SlurmdParameters=config_overrides
NodeName=n[1-4] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-17004] CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=low Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=3
CONF
slurmctld -c
for node in n1 n2 n3 n4; do
  mkdir -p "$folder/spool-$node"
  slurmd -N "$node"
done
for _ in $(seq 600); do
  [ "$(sinfo --noheader --Node --states=idle --format=%N 2> /dev/null | sort -u | wc -l)" = 4 ] && break
  sleep 0.1
done
idle=$(sinfo --noheader --Node --states=idle --format=%N | sort -u | wc -l)
[ "$idle" = 4 ] || { echo "four_nodes: $idle of 4 nodes are idle" >&2; tail -n 20 "$folder"/log/* >&2; exit 1; }
"$@"
