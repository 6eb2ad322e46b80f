#!/usr/bin/env bash
# A whole Slurm on one machine, for tests: munged, slurmctld and one slurmd for each node, all on 127.0.0.1.
#
#   slurm-cluster.sh up DIR              start it under DIR; prints the SLURM_CONF to use
#   slurm-cluster.sh down DIR            stop everything that it started there
#   slurm-cluster.sh kill-node DIR NODE  kill -9 the slurmd of a node; what it started lives on
#   slurm-cluster.sh crash-node DIR NODE the same with all that it started, as when the power fails
#   slurm-cluster.sh start-node DIR NODE start it again
#   slurm-cluster.sh kill-ctld DIR       kill -9 slurmctld
#   slurm-cluster.sh start-ctld DIR      start it again, with the state it saved
#   slurm-cluster.sh restart-ctld DIR    both
#   slurm-cluster.sh save-ctld DIR NAME  copy what slurmctld has on disk at this moment
#   slurm-cluster.sh forget-ctld DIR NAME  kill -9 slurmctld and start it with that copy: it forgets what came after
#
# SLURM_NODES="n1:v100:4 n2:v100:4 ..."  nodes as NAME:TYPE:GPUS
# SLURM_NODE_TIMEOUT=10                  seconds until a node that does not answer is down
#
# It needs root and, on Debian, the packages slurm-wlm and munge. Several may run at once in different directories.
# It ends only processes whose ids it wrote down and which still are what they were.
#
# The GPUs are device nodes that are each another /dev/null: slurmd wants a character device behind `File=` and sets
# CUDA_VISIBLE_DEVICES only then.
set -euo pipefail

usage() { sed -n '4,13p' "${BASH_SOURCE[0]}" | cut -c3- >&2; exit 2; }
[ $# -ge 2 ] || usage
what=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
export SLURM_CONF=$dir/slurm.conf
PATH=$PATH:/usr/sbin:/sbin
read -r -a nodes <<<"${SLURM_NODES:-n1:v100:4 n2:v100:4 n3:a100:8 n4:k80:4}"

fail() { echo "slurm-cluster: $*" >&2; exit 1; }

# Ports below those that the kernel gives out by itself, free at this moment; another may take one before we do, so
# `up` tries again.
free_port() {
    local port
    for _ in $(seq 200); do
        port=$((15000 + (RANDOM * 32768 + RANDOM) % 16000))
        [[ " $ports " = *" $port "* ]] && continue
        if ! grep -qi ":$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    fail "no free port"
}

write_conf() {
    local node name type gpus port i
    ports=
    port=$(free_port); ports+=" $port"
    mkdir -p "$dir"/{state,log,run,munge,dev}
    chmod 755 "$dir"
    cat >"$dir/slurm.conf" <<CONF
ClusterName=yard
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$port
# Without these two the daemons listen on every address of the machine.
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
# Believe the CPUs and memory written here, not the machine's own.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SchedulerType=sched/backfill
# A job that is released is looked at now and not in seconds.
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=5
PriorityType=priority/basic
KillWait=5
MinJobAge=300
MaxJobCount=20000
SlurmctldTimeout=30
SlurmdTimeout=${SLURM_NODE_TIMEOUT:-10}
TCPTimeout=5
JobRequeue=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/log/jobcomp.txt
CONF
    : >"$dir/gres.conf"
    for node in "${nodes[@]}"; do
        IFS=: read -r name type gpus <<<"$node"
        port=$(free_port); ports+=" $port"
        mkdir -p "$dir/spool.$name"
        for ((i = 0; i < gpus; i++)); do
            [ -c "$dir/dev/$name-gpu$i" ] || mknod -m 666 "$dir/dev/$name-gpu$i" c 1 3
        done
        echo "NodeName=$name Name=gpu Type=$type File=$dir/dev/$name-gpu[0-$((gpus - 1))]" >>"$dir/gres.conf"
        echo "NodeName=$name NodeHostname=localhost NodeAddr=127.0.0.1 Port=$port CPUs=32 Sockets=1 CoresPerSocket=32" \
            "ThreadsPerCore=1 RealMemory=256000 Gres=gpu:$type:$gpus Feature=$type State=UNKNOWN" >>"$dir/slurm.conf"
    done
    echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO" >>"$dir/slurm.conf"
}

# The process of a pid file, if it still is the program that wrote it.
process() {
    local pid
    pid=$(cat "$dir/$2" 2>/dev/null) || return 1
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ] && echo "$pid"
}

stop() { # SIGNAL PROGRAM PIDFILE
    local pid
    pid=$(process "$2" "$3") || return 0
    kill "-$1" "$pid" 2>/dev/null || return 0
    for _ in $(seq 200); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] || return 0
        sleep 0.05
    done
    kill -9 "$pid" 2>/dev/null || true
}

start_munge() {
    [ -z "$(process munged munge/munged.pid)" ] || return 0
    [ -f "$dir/munge/key" ] || head -c 1024 /dev/urandom >"$dir/munge/key"
    chown -R munge:munge "$dir/munge"
    chmod 600 "$dir/munge/key"
    chmod 711 "$dir/munge"
    setpriv --reuid=munge --regid=munge --clear-groups munged --force --key-file="$dir/munge/key" \
        --socket="$dir/munge/munge.socket" --pid-file="$dir/munge/munged.pid" \
        --log-file="$dir/munge/munged.log" --seed-file="$dir/munge/seed"
}

start_ctld() { [ -n "$(process slurmctld run/slurmctld.pid)" ] || slurmctld -f "$dir/slurm.conf"; }
start_node() { [ -n "$(process slurmd "run/slurmd.$1.pid")" ] || slurmd -f "$dir/slurm.conf" -N "$1"; }

wait_idle() {
    for _ in $(seq 150); do
        [ "$(timeout 2 sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" = "${#nodes[@]}" ] && return 0
        # A slurmctld that lost the race for a port has exited.
        [ -n "$(process slurmctld run/slurmctld.pid)" ] || return 1
        sleep 0.1
    done
    return 1
}

up() {
    [ "$(id -u)" = 0 ] || fail "it needs root, because slurmd changes users"
    command -v slurmctld slurmd munged >/dev/null || fail "Slurm is missing; on Debian: apt-get install slurm-wlm munge"
    for try in 1 2 3; do
        write_conf
        start_munge
        start_ctld
        local node
        for node in "${nodes[@]}"; do start_node "${node%%:*}"; done
        if wait_idle; then
            echo "SLURM_CONF=$SLURM_CONF"
            return
        fi
        down
    done
    tail -n 5 "$dir"/log/*.log >&2
    fail "not all nodes came up in $try tries; the logs are in $dir/log"
}

# Ends what slurmd started on a node, or on any: those that watch over jobs, and the jobs. slurmd leaves both behind.
kill_jobs() { # NODE, or nothing
    local proc environ
    for proc in /proc/[0-9]*; do
        [ "$(cat "$proc/comm" 2>/dev/null)" = slurmstepd ] || continue
        [[ "$(readlink "$proc/cwd" 2>/dev/null)" = "$dir/spool.${1:-}"* ]] && kill -9 "${proc#/proc/}" 2>/dev/null || true
    done
    for proc in /proc/[0-9]*; do
        environ=$({ tr '\0' '\n' <"$proc/environ"; } 2>/dev/null) || continue
        grep -qx "SLURM_CONF=$dir/slurm.conf" <<<"$environ" || continue
        grep -qx "SLURMD_NODENAME=${1:-.*}" <<<"$environ" || continue
        kill -9 "${proc#/proc/}" 2>/dev/null || true
    done
}

down() {
    local file name pid
    # All are told first, so that they end at the same time.
    for file in "$dir"/run/slurmd.*.pid; do
        [ -f "$file" ] && pid=$(process slurmd "${file#"$dir"/}") && kill "$pid" 2>/dev/null || true
    done
    stop TERM slurmctld run/slurmctld.pid
    for file in "$dir"/run/slurmd.*.pid; do
        [ -f "$file" ] || continue
        name=${file#"$dir"/}
        stop TERM slurmd "$name"
    done
    kill_jobs
    stop TERM munged munge/munged.pid
}

crash_node() {
    stop KILL slurmd "run/slurmd.$1.pid"
    kill_jobs "$1"
}

# Whatever is being written is renamed into place, so that a copy holds whole files.
save_ctld() { rm -rf "$dir/saved.$1" && cp -a "$dir/state" "$dir/saved.$1"; }

forget_ctld() {
    [ -d "$dir/saved.$1" ] || fail "nothing was saved as $1"
    stop KILL slurmctld run/slurmctld.pid
    rm -rf "$dir/state" && cp -a "$dir/saved.$1" "$dir/state"
    start_ctld
}

case $what in
    up) up ;;
    down) down ;;
    kill-node) stop KILL slurmd "run/slurmd.${3:?NODE}.pid" ;;
    crash-node) crash_node "${3:?NODE}" ;;
    start-node) start_node "${3:?NODE}" ;;
    kill-ctld) stop KILL slurmctld run/slurmctld.pid ;;
    start-ctld) start_ctld ;;
    restart-ctld) stop KILL slurmctld run/slurmctld.pid; start_ctld ;;
    save-ctld) save_ctld "${3:?NAME}" ;;
    forget-ctld) forget_ctld "${3:?NAME}" ;;
    *) usage ;;
esac
