#!/bin/sh
# Runs one attempt of a job of Trainyard under Slurm. It needs a POSIX shell, coreutils and setsid, and nothing else.
#
#   run.sh RUN_DIR JOB                     as the batch script of a Slurm job
#   run.sh RUN_DIR JOB node ATTEMPT PORT   on each node of an attempt, by srun
#
# RUN_DIR is shared by all nodes. Files, and who writes them:
#   slurm/jobs/JOB/go        the daemon: "ATTEMPT SLURM_ID"; without it nothing runs
#   JOB.ATTEMPT/stop         the daemon: seconds that are left to save
#   JOB.ATTEMPT/job/         of the job's user: launch.sh and env.sh by the daemon, the rest by this script:
#     taken/                 made, once, by the Slurm job that runs the attempt
#     started exit trouble   when it began, how it ended, why it could not begin
#     unfit                  what it could not begin for is the place: another may do
#     alive                  touched every other second
#     failed killed          the first rank that failed, with its code and whether it was asked; whether some had to be
#                            killed
#     stopping asked         when ranks were asked to stop; how many bytes the job had said when the first of them was
#     saved saved.before     the job's word that it saved, after the request and before it
#     rank_saved             a rank exited with the code that means so
#   JOB.ATTEMPT/logs/RANK/   the output of a rank
set -u
run=$1 job=$2
KILL_AFTER_SAVED=1 AFTER_FAILURE_MAX=10

# The daemon expects no start that it did not order: the Slurm job ends without having run anything.
refuse() { echo "trainyard: $*; nothing is run"; exit 0; }

trouble() {
    printf '%s\n' "$*" >"$own/trouble.partial" && mv -f "$own/trouble.partial" "$own/trouble"
}

now() { date +%s.%N; }

# Puts a text in place of a file as a whole.
put() { printf '%s\n' "$2" >"$1.partial" && mv -f "$1.partial" "$1"; }

# ---- the batch script

batch() {
    go=$run/slurm/jobs/$job/go
    attempt= slurm=
    [ -r "$go" ] && read -r attempt slurm <"$go"
    [ -n "$attempt" ] || refuse "job $job has no order to start"
    [ "$slurm" = "$SLURM_JOB_ID" ] || refuse "the order to start job $job is for Slurm job $slurm"
    at=$run/$job.$attempt own=$run/$job.$attempt/job
    [ -r "$own/launch.sh" ] || refuse "attempt $attempt of job $job is not here"
    . "$own/launch.sh"
    on_its_nodes || refuse "attempt $attempt of job $job belongs on $ty_nodes"
    # Slurm may start a job again by itself: the second finds that the attempt is taken.
    mkdir "$own/taken" 2>/dev/null || refuse "attempt $attempt of job $job ran already"
    began=$(now)
    if [ -e "$at/stop" ]; then
        put "$own/failed" "null 143 yes"
        over 143
        return
    fi
    if has_gpus && fence && enter; then
        port=$(free_port)
        if [ "$SLURM_JOB_NUM_NODES" -gt 1 ] && [ -z "${ty_once:-}" ]; then
            spread "$port"
        else
            node "$port"
            code=0
        fi
        over "$code"
    else
        over 126
    fi
}

on_its_nodes() {
    count=0 here=no
    for name in $ty_nodes; do
        count=$((count + 1))
        [ "$name" = "${SLURMD_NODENAME:-}" ] && here=yes
    done
    [ "$here" = yes ] && [ "$count" = "$SLURM_JOB_NUM_NODES" ]
}

# Slurm may start a job without the GPUs it was promised, as when it lost count of them: then nothing is run. Where the
# site's Slurm sets none of these variables, the script cannot tell. A word that is no list of devices counts as all.
has_gpus() {
    [ "${ty_gpus:-0}" -gt 0 ] || return 0
    for ty_given in "${CUDA_VISIBLE_DEVICES-unset}" "${ROCR_VISIBLE_DEVICES-unset}" "${ZE_AFFINITY_MASK-unset}"; do
        case $ty_given in
            unset) continue ;;
            '' | NoDevFiles) ty_count=0 ;;
            [0-9]* | GPU-* | MIG-*) ty_count=$(printf '%s,' "$ty_given" | tr -cd , | wc -c) ;;
            *) return 0 ;;
        esac
        [ "$ty_count" -lt "$ty_gpus" ] || return 0
        trouble "Slurm gave it $((ty_count)) of $ty_gpus GPUs on $SLURMD_NODENAME"
        : >"$own/unfit"
        return 1
    done
}

# The checkpoints of the last attempt become this one's by a rename: an old run that still lives finds its path gone,
# and one that starts late finds a newer one.
fence() {
    [ -n "$ty_checkpoint_root" ] || return 0
    me=$(id -u)
    if [ -n "${ty_checkpoint_named:-}" ]; then
        take_named "$ty_checkpoint_root" || return 1
    else
        # The daemon made it, in a directory of this user's.
        own_dir "${ty_checkpoint_root%/*}" && own_dir "$ty_checkpoint_root" || return 1
    fi
    last=0
    for dir in "$ty_checkpoint_root"/at-*; do
        number=${dir##*/at-}
        case $number in '' | *[!0-9]*) continue ;; esac
        [ "$number" -gt "$last" ] && last=$number
    done
    [ "$last" -le "$attempt" ] || refuse "attempt $last of job $job is newer than $attempt"
    mine=$ty_checkpoint_root/at-$attempt
    if [ "$last" -gt 0 ]; then
        own_dir "$ty_checkpoint_root/at-$last" && own_files "$ty_checkpoint_root/at-$last" || return 1
    fi
    if [ "$last" = "$attempt" ]; then
        return 0
    elif [ "$last" -gt 0 ]; then
        mv -T "$ty_checkpoint_root/at-$last" "$mine" && return 0
    else
        mkdir "$mine" && return 0
    fi
    trouble "checkpoint directory $mine cannot be made on $SLURMD_NODENAME"
    return 1
}

# A job that reads a checkpoint runs what is in it: it must be this user's own, and no link to somewhere else.
own_dir() {
    if [ -L "$1" ]; then
        foreign "$1" "is a link of $(stat -c '%u (%U)' "$1")"
    elif [ ! -d "$1" ]; then
        trouble "checkpoint directory $1 is not there on $SLURMD_NODENAME: is $run the same directory on every node?"
        return 1
    elif [ "$(stat -c %u "$1")" != "$me" ]; then
        foreign "$1" "belongs to $(stat -c '%u (%U)' "$1")"
    fi
}

# The same for what is at its top, as far as that can be looked at in a moment.
own_files() {
    other=$(ls -AUnq "$1" | head -n 1001 | while read -r _ _ owner _ _ _ _ _ name; do
        # The first line is a sum.
        [ -z "$owner" ] || [ "$owner" = "$me" ] || { echo "$1/$name belongs to $owner"; break; }
    done)
    [ -z "$other" ] || foreign "$1" "is not this user's alone: $other"
}

# A directory that the user named is made with the user's rights. It may be another's if that is root, or if it is
# there for a group of the user's; one of another user into which all users may write is refused.
take_named() {
    if ! mkdir -p "$1"; then
        trouble "checkpoint directory $1 cannot be made on $SLURMD_NODENAME"
        return 1
    fi
    named=$1
    set -- $(stat -L -c '%u %g %a' "$1")
    [ "$1" = "$me" ] && return 0
    case $3 in
        *[2367]) foreign "$named" "belongs to $1 and is open to all users (mode $3)"; return ;;
        *[2367]?) case " $(id -G) " in *" $2 "*) return 0 ;; esac ;;
    esac
    [ "$1" = 0 ] || foreign "$named" "belongs to $1"
}

foreign() {
    trouble "checkpoint directory $1 $2, and the job runs as $me: it is not used; find out who put it there \
and move it away"
    return 1
}

enter() {
    cd "$ty_cwd" 2>/dev/null && return 0
    trouble "working directory $ty_cwd cannot be entered on $SLURMD_NODENAME by $(id -un)"
    return 1
}

# A port at which no process listens on this node, counted from the number of the Slurm job, which no other job has.
free_port() {
    port=$((20000 + SLURM_JOB_ID % 10000))
    while grep -qi "$(printf ':%04X 0' "$port")" /proc/net/tcp /proc/net/tcp6 2>/dev/null; do
        port=$((port + 1))
    done
    echo "$port"
}

# One stage on each node; this script passes on what Slurm tells it and waits.
spread() {
    set -- --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
        --mem=0 --overlap --quiet --kill-on-bad-exit=0 --wait=0 --input=none --output=/dev/null \
        sh "$ty_script" "$run" "$job" node "$attempt" "$1"
    srun "$@" &
    stage=$!
    trap : USR1 USR2
    # The stages look at this file, and Slurm tells this script alone.
    trap '[ -e "$at/stop" ] || put "$own/ending" "$ty_grace"' TERM
    until wait_for "$stage"; do :; done
    code=$status
}

# Writes how it ended: the first rank that failed counts, and the others are stopped because of it. A request counts if
# it reached that rank, or some rank where all exited with 0; `ours` says whether it was Trainyard's or Slurm's.
over() {
    code=$1 rank=null asked=false ours=false killed=false stopped=null was_asked=no
    [ -e "$own/asked" ] && was_asked=yes
    [ -r "$own/failed" ] && read -r rank code was_asked <"$own/failed"
    [ "$was_asked" = yes ] && asked=true
    [ -e "$at/stop" ] && ours=true
    [ -e "$own/killed" ] && killed=true
    [ -r "$own/stopping" ] && read -r stopped <"$own/stopping"
    started=null
    [ -r "$own/started" ] && read -r started <"$own/started"
    put "$own/exit" "{\"code\":$code,\"rank\":$rank,\"asked\":$asked,\"ours\":$ours,\"killed\":$killed,\"began\":$began,\
\"started\":$started,\"stopped\":$stopped,\"ended\":$(now),\"slurm\":$SLURM_JOB_ID}"
    # Slurm shows what the job's user knows.
    exit "$code"
}

# ---- the stage of one node

# Starts the ranks of this node, passes a request to stop on to them, and waits until none is left.
node() {
    ty_address=127.0.0.1 ty_port=$1 number=${SLURM_NODEID:-0}
    [ "$SLURM_JOB_NUM_NODES" -gt 1 ] && ty_address=${SLURM_LAUNCH_NODE_IPADDR:-$SLURMD_NODENAME}
    setsid=$(command -v setsid) self=$$ ending= deadline= saved= supervisors= sent= ticker=
    # A process that sh starts in the background ignores these two, and so would the job.
    clean=
    env --default-signal=INT,QUIT true 2>/dev/null && clean="env --default-signal=INT,QUIT"
    trap : USR1 USR2
    trap 'ending=slurm' TERM
    local_rank=0
    while [ "$local_rank" -lt "$ty_ranks" ]; do
        rank=$((number * ty_ranks + local_rank))
        supervise "$rank" &
        supervisors="$supervisors $!"
        local_rank=$((local_rank + 1))
    done
    [ "$number" = 0 ] && put "$own/started" "$(now)"
    tick 2 &
    watcher=$!
    look
    for pid in $supervisors; do
        until wait_for "$pid"; do look; done
    done
    kill "$watcher" $ticker 2>/dev/null
    return 0
}

# Whether a child is over, with its status; no when a signal came first.
wait_for() {
    wait "$1"
    status=$?
    kill -s 0 "$1" 2>/dev/null && return 1
    # A signal and the end may come together: then the shell still knows the status.
    if [ "$status" -gt 128 ]; then
        wait "$1" 2>/dev/null
        again=$?
        [ "$again" = 127 ] || status=$again
    fi
    return 0
}

# Wakes the stage when there is something to look at. The daemon sees by `alive` that this still runs, also when Slurm
# has lost it.
tick() {
    while sleep "$1"; do
        # A signal that comes before this has begun is lost.
        kill -s 0 "$self" 2>/dev/null || return
        [ "$number" = 0 ] && : >"$own/alive"
        if [ "$1" != 2 ] || [ -e "$at/stop" ] || [ -e "$own/ending" ] || [ -e "$own/failed" ]; then
            kill -s USR1 "$self" 2>/dev/null || return
        fi
    done
}

# Passes a request to stop on, and kills when it is time to.
look() {
    grace=
    if [ -r "$at/stop" ]; then
        read -r grace <"$at/stop"
    elif [ -r "$own/ending" ]; then
        read -r grace <"$own/ending"
    elif [ -n "$ending" ]; then
        grace=$ty_grace
    elif [ -e "$own/failed" ]; then
        grace=$ty_grace
        [ "$grace" -gt "$AFTER_FAILURE_MAX" ] && grace=$AFTER_FAILURE_MAX
    fi
    [ -n "$grace" ] || return 0
    seconds=$(date +%s)
    # A part of this second has passed: with one more, no rank is killed before its time.
    ends=$((seconds + grace))
    [ "$grace" -gt 0 ] && ends=$((ends + 1))
    if [ -z "$sent" ]; then
        sent=yes deadline=$ends
        # What was said before the request tells of a checkpoint and acknowledges nothing.
        if (set -C && { wc -c <"$own/said.jsonl" || echo 0; } >"$own/asked") 2>/dev/null; then
            [ -e "$own/saved" ] && mv -f "$own/saved" "$own/saved.before"
        fi
        [ "$number" = 0 ] && put "$own/stopping" "$(now)"
        tick 0.2 &
        ticker=$!
        [ "$grace" -gt 0 ] && tell USR1
    elif [ "$ends" -lt "$deadline" ]; then
        deadline=$ends
    fi
    if [ -z "$saved" ] && [ -e "$own/saved" ]; then
        saved=yes
        [ $((seconds + KILL_AFTER_SAVED)) -lt "$deadline" ] && deadline=$((seconds + KILL_AFTER_SAVED))
    fi
    if [ "$seconds" -ge "$deadline" ]; then
        [ -n "$saved" ] || : >"$own/killed"
        tell USR2
    fi
}

# Its variable is its own: the loop that waits for one rank calls it in between, and must not go on with another rank.
tell() { for told in $supervisors; do kill -s "$1" "$told" 2>/dev/null; done; }

# One rank: its environment, its output, its end.
supervise() {
    child= ty_asked=no
    trap 'pass_on' USR1
    trap '[ -n "$child" ] && ty_asked=yes && kill -s KILL -- "-$child" 2>/dev/null' USR2
    trap : TERM
    log=$at/logs/$1/00000000000000000000
    ty_rank=$1 ty_local_rank=$local_rank ty_world=$((ty_ranks * SLURM_JOB_NUM_NODES)) ty_node=$number
    [ -z "${ty_once:-}" ] || ty_world=1
    ty_checkpoints=${ty_checkpoint_root:+$ty_checkpoint_root/at-$attempt}
    # From here on the variables are the job's; the command is in the arguments.
    . "$own/env.sh"
    if ! command -v "$1" >/dev/null 2>&1; then
        trouble "command $1 does not exist on $SLURMD_NODENAME; PATH is $PATH"
        fail 127
    fi
    "$setsid" $clean "$@" >>"$log" 2>&1 </dev/null &
    child=$!
    # A request that came before the trap was set is still in its file.
    [ -e "$at/stop" ] && pass_on
    until wait_for "$child"; do :; done
    # What a rank leaves behind is not the job any more.
    kill -s KILL -- "-$child" 2>/dev/null
    [ "$status" = 0 ] || fail "$status"
    exit 0
}

pass_on() {
    [ -n "$child" ] && [ "$ty_asked" = no ] || return 0
    ty_asked=yes
    kill -s "$ty_signal" -- "-$child" 2>/dev/null
    # A job that was suspended cannot save.
    kill -s CONT -- "-$child" 2>/dev/null
}

fail() {
    (set -C && echo "$ty_rank $1 $ty_asked" >"$own/failed") 2>/dev/null
    [ "$1" = "${ty_exit_code:-85}" ] && : >"$own/rank_saved"
    kill -s USR1 "$self" 2>/dev/null
    exit "$1"
}

if [ "${3:-}" = node ]; then
    attempt=$4 at=$run/$job.$4 own=$run/$job.$4/job
    . "$own/launch.sh"
    has_gpus && enter || { put "$own/failed" "null 126 no"; exit 126; }
    node "$5"
else
    batch
fi
