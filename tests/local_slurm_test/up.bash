#!/usr/bin/env bash
# Start a private SLURM on this machine: munged, slurmctld and a slurmd for each of several virtual nodes.
#
#   up.bash FOLDER [--isolated] [--nodes 4] [--cpus 2] [--port 26817] [--owner PID]
#
# Configuration, state and logs are in FOLDER, a scratch folder; nothing in /etc is read or written. Needs root.
#   --isolated   gives every node its own network, host name, System V memory and /dev/shm, so that MPI sees separate
#                machines; without it all nodes are this machine
#   --cpus       that a node says it has
#   --port       of slurmctld; node i listens on the i-th after it
#   --owner      ends all by itself when that process has ended
# Exit codes: 0 done, 3 namespaces or virtual networks are refused here, 1 anything else.
# Then exec.bash FOLDER COMMAND... runs sbatch, squeue and so on; down.bash FOLDER stops everything.

here=$(dirname "$(realpath "$0")")
source "$here/common.bash"
open_folder "${1:-}"; shift
isolated='' nodes=4 cpus=2 port=26817 owner=''
while [ $# -gt 0 ]; do
  case $1 in
    --isolated) isolated=1; shift;;
    --nodes | --cpus | --port | --owner) declare "${1#--}=${2:?}"; shift 2;;
    *) die "unknown option $1";;
  esac
done
[ "$(id -u)" = 0 ] || die "only root can start SLURM's daemons"
for tool in munged slurmctld slurmd sinfo; do
  command -v "$tool" >/dev/null || die "there is no $tool (apt-get install slurm-wlm munge)"
done
[ -z "$(processes)" ] || die "a SLURM runs in $folder; end it with down.bash"
trap '[ $? = 0 ] || "$here/down.bash" "$folder"' EXIT

umask 022
rm -rf "$folder"/{state,spool,run,nodes,pmix}
mkdir -p "$folder"/{etc/login,munge,state,spool,run,log,nodes,pmix}

# --- where login, node1, node2, ... are: host name and address
host_of() { if [ "$isolated" ]; then echo "$1"; else hostname -s; fi; }
address_of() {
  case ${isolated:+isolated}-$1 in
    -*) echo 127.0.0.1;;
    isolated-login) echo 10.77.0.1;;
    isolated-node*) echo "10.77.0.$((${1#node} + 10))";;
  esac
}
names=(); for i in $(seq "$nodes"); do names+=("node$i"); done

# --- configuration: that of a node differs in the folder of PMIx, which several nodes of one machine can't share
memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
{
  cat <<EOF
ClusterName=private
SlurmctldHost=$(host_of login)($(address_of login))
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
EnforcePartLimits=ALL
ReturnToService=2
KillWait=2
MinJobAge=3600
PropagateResourceLimits=NONE
NodeName=DEFAULT CPUs=$cpus Boards=1 SocketsPerBoard=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=$memory
EOF
  i=0
  for name in "${names[@]}"; do
    i=$((i + 1))
    echo "NodeName=$name NodeHostname=$(host_of "$name") NodeAddr=$(address_of "$name") Port=$((port + i))"
  done
  echo "PartitionName=all Nodes=$(IFS=,; echo "${names[*]}") Default=YES MaxTime=INFINITE State=UP"
} >"$folder/etc/slurm.conf"
printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$folder/etc/cgroup.conf"
for name in login "${names[@]}"; do
  mkdir -p "$folder/etc/$name" "$folder/spool/$name" "$folder/pmix/$name"
  ln -sfn ../slurm.conf ../cgroup.conf "$folder/etc/$name/"
  echo "PMIxCliTmpDirBase=$folder/pmix/$name" >"$folder/etc/$name/mpi.conf"
done

# --- isolated nodes: a process holds the namespaces of each; a bridge at login joins their networks
hold() { # NODE
  (at "$1" setsid unshare --net --uts --ipc --mount --propagation private bash -c '
    hostname "$1" && mount --bind "$2/etc/hosts" /etc/hosts && mount -t tmpfs tmpfs /dev/shm &&
    ip link set lo up && echo $$ >"$2/nodes/.$1" && mv "$2/nodes/.$1" "$2/nodes/$1" && exec sleep infinity
    ' hold "$1" "$folder" </dev/null >"$folder/log/hold.$1.log" 2>&1) &
}
refused() { echo "isolated nodes are refused here: $*" >&2; exit 3; }
if [ "$isolated" ]; then
  command -v ip >/dev/null || die "there is no ip (apt-get install iproute2)"
  echo "127.0.0.1 localhost" >"$folder/etc/hosts"
  for name in login "${names[@]}"; do echo "$(address_of "$name") $name"; done >>"$folder/etc/hosts"
  unshare --net --uts --ipc --mount true || refused "no namespaces"
  for name in login "${names[@]}"; do hold "$name"; done
  for name in login "${names[@]}"; do
    for _ in $(seq 100); do [ -e "$folder/nodes/$name" ] || sleep 0.05; done
    [ -e "$folder/nodes/$name" ] || refused "$(cat "$folder/log/hold.$name.log")"
  done
  (at login ip link add bridge type bridge) || refused "no virtual network"
  (at login ip address add "$(address_of login)/24" dev bridge)
  (at login ip link set bridge up)
  for name in "${names[@]}"; do
    (at login ip link add "$name" type veth peer name eth0 netns "$(cat "$folder/nodes/$name")")
    (at login ip link set "$name" master bridge up)
    (at "$name" ip address add "$(address_of "$name")/24" dev eth0)
    (at "$name" ip link set eth0 up)
  done
fi

# --- daemons
[ -s "$folder/munge/key" ] || (umask 077; head -c 128 /dev/urandom >"$folder/munge/key")
# By force, since the scratch folder may lie where only its owner may enter.
(at login munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
  --pid-file="$folder/run/munged.pid" --log-file="$folder/log/munged.log" --seed-file="$folder/munge/seed" 2>/dev/null)
(at login slurmctld)
for name in "${names[@]}"; do (at "$name" slurmd -N "$name"); done
if [ "$owner" ]; then
  env "$mark" setsid bash -c 'tail --pid="$1" -s 0.5 -f /dev/null; exec env -u MPIMBS_PRIVATE_SLURM "$2" "$3"' \
    watch "$owner" "$here/down.bash" "$folder" </dev/null >/dev/null 2>&1 &
fi

for _ in $(seq 100); do
  [ "$( (at login sinfo -h -N -o %T) 2>/dev/null | grep -c '^idle$')" = "$nodes" ] && exit 0
  sleep 0.1
done
tail -n 5 "$folder"/log/*.log >&2
die "the nodes don't come up"
