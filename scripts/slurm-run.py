#!/usr/bin/env python3
"""The same jobs on a real Slurm and in the simulator, and a run in which everything is killed.

    slurm-run.py DIR [--program trainyard] [--jobs 200] [--within 240] [--policies fifo,las,gavel] [--chaos]
        [--kills 5] [--others 30]

Starts a Slurm (scripts/slurm-cluster.sh) and a daemon on it for each policy, submits the jobs when they are due, waits
for all of them, and simulates the same jobs with the start and save times that were measured. With --chaos slurmctld,
slurmd and the daemon are killed meanwhile, --kills times each; every other slurmctld comes back with what it knew some
seconds before. Jobs then ask for 1 to 8 GPUs, on as many nodes as it takes. Jobs of another user run beside ours; slurmctld's log tells whether anything was done to one of them.
Needs root and Slurm.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CLUSTER = "2x4 v100, 1x8 a100, 1x4 k80"
#: Steps a second by type: three kinds of models that differ in what a better GPU is worth to them.
SPEEDS = {
    "even": {"v100": 4.0, "a100": 4.4, "k80": 3.6},
    "some": {"v100": 4.0, "a100": 8.0, "k80": 2.0},
    "much": {"v100": 4.0, "a100": 12.0, "k80": 1.0},
}
#: A user who has nothing to do with us.
OTHER = 65534
#: Seconds between two copies of slurmctld's state.
SAVE_EVERY = 2.0
TYPES = {"n1": "v100", "n2": "v100", "n3": "a100", "n4": "k80"}

JOB = r"""#!/bin/sh
# A training that sleeps: STEPS steps, at a pace that depends on the node, with a checkpoint when it is asked for one.
case $SLURMD_NODENAME in n3) pace=$A100 ;; n4) pace=$K80 ;; *) pace=$V100 ;; esac
# Of several ranks the first keeps the books; the others keep it company.
[ "${RANK:-0}" = 0 ] || { RAN=/dev/null DONE=/dev/null TRAINYARD_REPORT_FILE=/dev/null; trap 'exit 85' TERM; }
echo "$TRAINYARD_JOB_ID $TRAINYARD_ATTEMPT $(date +%s.%N)" >>$RAN
n=$(cat $TRAINYARD_CHECKPOINT_DIR/n 2>/dev/null || echo 0)
tell() { printf '%s\n' "$1" >>$TRAINYARD_REPORT_FILE; }
save() { echo $n >$TRAINYARD_CHECKPOINT_DIR/n.new && mv $TRAINYARD_CHECKPOINT_DIR/n.new $TRAINYARD_CHECKPOINT_DIR/n &&
    tell "{\"type\":\"saved\",\"done\":$n}" && echo $n >$TRAINYARD_ACK_FILE; exit 85; }
[ "${RANK:-0}" = 0 ] && trap save TERM
tell "{\"type\":\"progress\",\"done\":$n,\"total\":$STEPS}"
while [ $n -lt $STEPS ]; do
    sleep $pace & wait $!
    n=$((n + 1))
    [ $((n % 8)) = 0 ] && tell "{\"type\":\"progress\",\"done\":$n,\"total\":$STEPS}"
done
echo "$TRAINYARD_JOB_ID $n" >>$DONE
tell '{"type":"finished"}'
"""


def profiles():
    text = ""
    for name, speeds in SPEEDS.items():
        text += f'[[model]]\nname = "{name}"\nsource = "made up for this run"\n'
        for kind, rate in speeds.items():
            for gpus in (1, 2, 4, 8):
                text += f'[[model.point]]\nkind = "{kind}"\ngpus = {gpus}\nnodes = 1\nrate = {rate}\n'
    return text


def plan(jobs, within, seconds, seed, sizes):
    dice = random.Random(seed)
    made = []
    for number in range(jobs):
        model = dice.choice(sorted(SPEEDS))
        made.append({
            "arrives": dice.uniform(0, within),
            "gpus": dice.choice(sizes),
            # Half of the jobs may be cut in parts, half are one process.
            "processes": dice.choice(["per-job", "per-node"]),
            "model": model,
            "steps": int(dice.uniform(*seconds) * SPEEDS[model]["v100"]),
        })
    made.sort(key=lambda job: job["arrives"])
    for number, job in enumerate(made):
        job["name"] = f"j{number}"
    return made


class Yard:
    def __init__(self, args, policy):
        self.dir = pathlib.Path(args.dir) / policy.split(":")[0]
        self.dir.mkdir(parents=True)
        self.args, self.policy = args, policy
        self.conf = self.dir / "slurm" / "slurm.conf"
        self.saves, self.resumed, self.others = 0, 0, []
        self.cluster("up")
        (self.dir / "profiles.toml").write_text(profiles())
        (self.dir / "job.sh").write_text(JOB)
        (self.dir / "job.sh").chmod(0o755)
        for name in ("ran", "done"):
            (self.dir / name).touch()
        self.start()

    def cluster(self, *what):
        command = [HERE / "slurm-cluster.sh", what[0], self.dir / "slurm", *what[1:]]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def save_state(self):
        """Copies what slurmctld has on disk; the last few copies are kept."""
        self.saves += 1
        self.cluster("save-ctld", str(self.saves % 8))

    def forget(self, seconds):
        """slurmctld is killed and comes back with what it knew so many seconds ago."""
        back = max(1, min(7, int(seconds / SAVE_EVERY), self.saves - 1))
        self.cluster("forget-ctld", str((self.saves - back) % 8))

    def resume_drained(self):
        """Does what an operator does: a slurmctld that gives a number twice takes the node out of service for it."""
        environ = dict(os.environ, SLURM_CONF=str(self.conf))
        asked = ["sinfo", "--noheader", "--Node", "--states=drain", "--format=%N %E"]
        for line in subprocess.run(asked, env=environ, capture_output=True, text=True).stdout.splitlines():
            node, _, reason = line.partition(" ")
            if "Duplicate jobid" in reason:
                self.resumed += 1
                subprocess.run(["scontrol", "update", f"nodename={node}", "state=resume"], env=environ)

    def submit_other(self, number, seconds):
        command = ["sbatch", "--parsable", f"--uid={OTHER}", f"--gid={OTHER}", "--mem=10", "--chdir=/", "--gres=gpu:1",
                   "--output=/dev/null", f"--job-name=other-{number}", f"--wrap=sleep {seconds}"]
        environ = dict(os.environ, SLURM_CONF=str(self.conf))
        done = subprocess.run(command, env=environ, capture_output=True, text=True)
        if done.returncode == 0:
            self.others.append((int(done.stdout), time.time()))

    def touched(self):
        """What slurmctld was asked to do to jobs of the other user, by its log."""
        others, owner, found = {}, {}, []
        for job, at in self.others:
            others.setdefault(job, []).append(at)
        for line in (self.dir / "slurm/log/slurmctld.log").read_text().splitlines():
            job = re.search(r"JobId=(\d+)", line)
            if not job:
                continue
            job = int(job[1])
            if "_slurm_rpc_submit_batch_job: JobId" in line:
                at = time.mktime(time.strptime(line[1:20], "%Y-%m-%dT%H:%M:%S"))
                # Ours are submitted held; a number may be given away twice within a second.
                ours = "InitPrio=0 " in line
                owner[job] = not ours and any(abs(at - submitted) < 3 for submitted in others.get(job, []))
            # Calls that were made, and not what Slurm does itself when a node fails or comes back without a job.
            elif owner.get(job) and re.search(r"_update_job|_kill_job|_slurm_rpc_\w*requeue|hold_job", line, re.IGNORECASE):
                found.append(line)
        return found

    def start(self):
        log = open(self.dir / "serve.log", "a")
        command = [self.args.program, "serve", "--slurm", "--slurm-conf", self.conf, "--state", self.dir / "s",
                   "--policy", self.policy, "--slurm-reconfigure", "--profiles", self.dir / "profiles.toml"]
        self.daemon = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.dir)
        self.until_answers()

    def until_answers(self):
        deadline = time.time() + 90
        while True:
            if self.ask("ps", "--json", check=False) is not None:
                return
            if self.daemon.poll() is not None or time.time() > deadline:
                sys.exit(f"the daemon does not answer; see {self.dir}/serve.log")
            time.sleep(0.2)

    def kill(self):
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()

    def ask(self, *arguments, check=True):
        environ = dict(os.environ, TRAINYARD_SERVER=f"unix:{self.dir}/s/api.sock")
        done = subprocess.run([self.args.program, *arguments], cwd=self.dir, env=environ, capture_output=True, text=True)
        if done.returncode != 0:
            if check:
                sys.exit(f"{arguments}: {done.stdout}{done.stderr}")
            return None
        return json.loads(done.stdout)

    def submit(self, job):
        pace = {kind: 1.0 / rate for kind, rate in SPEEDS[job["model"]].items()}
        env = {"STEPS": job["steps"], "V100": pace["v100"], "A100": pace["a100"], "K80": pace["k80"],
               "RAN": self.dir / "ran", "DONE": self.dir / "done"}
        text = f'name = "{job["name"]}"\ncommand = ["{self.dir}/job.sh"]\ngpus = {job["gpus"]}\n'
        text += f'model = "{job["model"]}"\nsteps = {job["steps"]}\n'
        text += f'processes = "{job["processes"]}"\n' if self.args.chaos else "nodes_max = 1\n"
        text += "".join(f'env.{name} = "{value}"\n' for name, value in env.items())
        file = self.dir / f'{job["name"]}.toml'
        file.write_text(text)
        answer = None
        while answer is None:
            answer = self.ask("submit", file.name, "--json", "--key", job["name"], check=False)
            time.sleep(0 if answer else 0.3)
        job["id"] = answer["jobs"][0]

    def end(self):
        self.kill()
        self.cluster("down")


#: What must not happen, whatever is killed.
NEVER = ("ended_twice", "attempt_ran_twice", "others_touched")


def kill(yard, what, number, dice):
    if what == "slurmctld" and number % 2:
        yard.forget(dice.uniform(3, 10))
    elif what == "slurmctld":
        yard.cluster("kill-ctld")
        time.sleep(dice.uniform(0, 3))
        yard.cluster("start-ctld")
    elif what == "daemon":
        yard.kill()
        time.sleep(dice.uniform(0, 3))
        yard.start()
    else:
        node = dice.choice(sorted(TYPES))
        yard.cluster("kill-node", node)
        time.sleep(dice.choice([1, 25]))
        yard.cluster("start-node", node)


def run(args, policy):
    yard = Yard(args, policy)
    sizes = range(1, 9) if args.chaos else [1, 1, 1, 1, 2, 2, 4]
    jobs = plan(args.jobs, args.within, (args.least, args.most), args.seed, sizes)
    begun, dice = time.time(), random.Random(args.seed + 1)
    kills = [(what, number) for number in range(args.kills) for what in ("slurmctld", "daemon", "slurmd")]
    dice.shuffle(kills)
    kills = kills if args.chaos else []
    done, next_kill, next_save = {}, begun + 8, begun
    others = sorted((dice.uniform(0, args.within), dice.uniform(5, 40)) for _ in range(args.others))
    waiting = list(jobs)
    while True:
        now = time.time() - begun
        while waiting and waiting[0]["arrives"] <= now:
            yard.submit(waiting.pop(0))
        while others and others[0][0] <= now:
            yard.submit_other(args.others - len(others), others.pop(0)[1])
        if args.chaos and time.time() >= next_save:
            yard.save_state()
            yard.resume_drained()
            next_save = time.time() + SAVE_EVERY
        if kills and time.time() >= next_kill:
            what, number = kills.pop()
            done[what] = done.get(what, 0) + 1
            kill(yard, what, number, dice)
            next_kill = time.time() + dice.uniform(4, 12)
        rows = yard.ask("ps", "--json", check=False)
        if not waiting and not others and not kills and rows is not None and not rows["jobs"]:
            break
        if now > args.within * 6 + 600:
            print("not all jobs ended:", json.dumps(rows)[:2000])
            break
        time.sleep(0.3)
    result = measure(yard, jobs, policy)
    touched = yard.touched()
    result |= {"kills": done, "resumed": yard.resumed, "others": len(yard.others), "others_touched": len(touched)}
    for line in touched:
        print("touched:", line, file=sys.stderr)
    yard.end()
    return result


def measure(yard, jobs, policy):
    starts, saves, took, states, preempted, waited = [], [], [], {}, 0, [0.0]
    for job in jobs:
        detail = yard.ask("job", "show", str(job["id"]), "--json")
        states[detail["state"]] = states.get(detail["state"], 0) + 1
        job["submitted"] = detail["submitted"]
        if detail.get("ended"):
            took.append(detail["ended"] - detail["submitted"])
        preempted += detail["preemptions"]
        for attempt in detail["attempts"]:
            if attempt.get("started") and attempt.get("launched"):
                starts.append(attempt["started"] - attempt["launched"])
            until = attempt.get("started") or attempt.get("ended")
            if until and attempt.get("launched"):
                waited.append(until - attempt["launched"])
        if detail["measured"].get("save"):
            saves.append(detail["measured"]["save"])
    done = [line.split() for line in (yard.dir / "done").read_text().splitlines()]
    ran = [tuple(line.split()[:2]) for line in (yard.dir / "ran").read_text().splitlines()]
    mean = lambda all: sum(all) / len(all) if all else 0.0
    first = min(job["submitted"] for job in jobs)
    trace = "id,submit_s,gpus,steps,model\n" + "".join(
        f'{job["name"]},{job["submitted"] - first:.6f},{job["gpus"]},{job["steps"]},{job["model"]}\n' for job in jobs)
    (yard.dir / "trace.csv").write_text(trace)
    # What an attempt costs beyond its steps: from the order to the first step, and from the last to the report.
    costs = f"flat save={mean(saves) + yard.args.ending:.3f}s start={mean(starts) + yard.args.ending:.3f}s"
    simulated = yard.ask("sim", "--policy", policy, "--trace", "trace.csv", "--cluster", CLUSTER, "--costs", costs,
                         "--profiles", "profiles.toml", "--estimate-error", "0", "--json")
    summary = simulated["runs"][0]["summary"]
    return {
        "policy": policy, "states": states, "live": mean(took), "simulated": summary["jct_s"]["mean"],
        "ratio": mean(took) / summary["jct_s"]["mean"], "preempted": preempted,
        "simulated_preempted": summary["preemptions"], "start": mean(starts), "save": mean(saves),
        "ended_twice": len(done) - len({one[0] for one in done}), "attempt_ran_twice": len(ran) - len(set(ran)),
        "attempts": len(ran), "longest_wait_in_slurm": max(waited),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--program", default="trainyard")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--within", type=float, default=240.0)
    parser.add_argument("--least", type=float, default=10.0)
    parser.add_argument("--most", type=float, default=40.0)
    parser.add_argument("--ending", type=float, default=0.3, help="seconds from a job's end to the report of it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policies", default="fifo;las:quantum=60s,turn=20s;gavel:round=60s",
                        help="separated by semicolons")
    parser.add_argument("--chaos", action="store_true")
    parser.add_argument("--kills", type=int, default=5, help="how often each of slurmctld, slurmd and the daemon is killed")
    parser.add_argument("--others", type=int, default=0, help="jobs of another user beside ours")
    args = parser.parse_args()
    args.program = str(pathlib.Path(args.program).resolve()) if "/" in args.program else args.program
    wrong = []
    for policy in args.policies.split(";"):
        result = run(args, policy)
        print(json.dumps(result), flush=True)
        wrong += [f"{policy}: {name} {result[name]}" for name in NEVER if result[name]]
        if result["states"] != {"finished": args.jobs}:
            wrong.append(f"{policy}: not all {args.jobs} jobs finished: {result['states']}")
    sys.exit("\n".join(wrong) or None)


main()
