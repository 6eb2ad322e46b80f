"""The parts of scripts/sharing-evidence that need the daemon: jobs put aside, and a queue under several policies."""

import contextlib
import csv
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DRIVER = HERE.parent / "crates/live/backend/tests/fixtures/driver.c"
# Twelve jobs: kind, steps on the device and in a dry run, and seconds between submissions. Named before they were run.
QUEUE = [
    ("medium", 1500, 60), ("small", 8000, 80), ("heavy", 700, 40), ("medium", 2500, 100),
    ("small", 12000, 120), ("heavy", 500, 40), ("medium", 1000, 40), ("small", 6000, 60),
    ("heavy", 900, 80), ("medium", 2000, 80), ("small", 9000, 60), ("heavy", 600, 40),
]
POLICIES = {
    "fifo": "fifo",
    "gandiva": "gandiva:quantum=10s,overhead=1",
    "antman": "antman",
    "lucid": "lucid",
}


class Daemon:
    """`trainyard serve` with a state of its own; it ends with the step."""

    def __init__(self, bench, policy, suspend, options=(), least=None):
        self.bench = bench
        self.state = pathlib.Path(tempfile.mkdtemp(prefix="yard."))
        self.socket = self.state / "api.sock"
        # A program is left alone until it has imported what it needs: before that it cannot be put aside.
        self.least = least or ("1s" if bench.given.device == "driver" else "15s")
        self.yard = str(bench.bin / "trainyard")
        words = [self.yard, "serve", "--state", str(self.state), "--policy", policy, "--no-page"]
        words += ["--no-cgroups", "--suspend-memory", suspend, *options]
        self.env = dict(os.environ, TRAINYARD_STATE=str(self.state))
        if bench.given.device == "driver":
            self.env["FAKE_DRIVER"] = str(stand_in(bench))
            library = stand_in(bench) / "libcuda.so.1"
            words += ["--gpus", "1xh200", "--no-gpu-health", "--driver-library", str(library)]
        self.child = subprocess.Popen(words, env=self.env, stdout=bench.log, stderr=bench.log)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                self.ask("/v1/jobs")
                return
            time.sleep(0.1)
        raise RuntimeError("the daemon did not start")

    def ask(self, route):
        """One answer of the daemon."""
        line = http.client.HTTPConnection("127.0.0.1")
        line.sock = socket.socket(socket.AF_UNIX)
        line.sock.connect(str(self.socket))
        line.request("GET", route)
        return json.loads(line.getresponse().read())

    def run(self, *words):
        """A command on it."""
        done = subprocess.run([self.yard, *words], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, name, words, memory_gib, seconds):
        """A job that cannot save and knows nothing."""
        file = self.state / f"{name}.toml"
        variables = f'FAKE_DRIVER = "{self.env["FAKE_DRIVER"]}"' if "FAKE_DRIVER" in self.env else ""
        file.write_text(
            f'name = "{name}"\ncommand = {json.dumps(words)}\ngpus = 1\ngpu_memory = "{memory_gib}GiB"\n'
            f'saves = false\nexpected = "{seconds:.0f}s"\nretries = 0\nmin_run = "{self.least}"\n[env]\n{variables}\n'
        )
        self.run("submit", str(file))

    def jobs(self):
        """All jobs."""
        return sorted(self.ask("/v1/jobs?all=true")["jobs"], key=lambda row: row["id"])

    def until_over(self, look=lambda rows: None):
        """Waits until all jobs are over; `look` is told of them twice a second."""
        while True:
            rows = self.jobs()
            look(rows)
            if rows and all(row["state"] in ("finished", "failed", "cancelled") for row in rows):
                return rows
            time.sleep(0.5)

    def log(self, job):
        """What a job wrote."""
        return self.run("logs", str(job))

    def end(self):
        """Ends it and what it left."""
        self.child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(5)
        for folder in (self.state / "run").glob("*.*"):
            with contextlib.suppress(Exception):
                os.kill(json.loads((folder / "keeper.json").read_text())["pid"], 9)
                for pid in json.loads((folder / "started.json").read_text()):
                    os.kill(pid, 9)
        shutil.rmtree(self.state, ignore_errors=True)


def stand_in(bench):
    """The folder of a driver that is not there, compiled when it is first needed."""
    folder = bench.out / "driver"
    folder.mkdir(exist_ok=True)
    if not (folder / "libcuda.so.1").exists():
        words = ["cc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(DRIVER), "-ldl"]
        subprocess.run(words, check=True)
    return folder


def words(bench, kind, steps, gib):
    """The command of a job."""
    return [bench.given.python, str(HERE / "sharing_job.py"), kind, str(steps), str(gib)]


def alone(bench, kind, steps, gib):
    """What such a job takes alone, outside the daemon: from its start to its end, and training alone; its checksum."""
    env = dict(os.environ)
    if bench.given.device == "driver":
        env["FAKE_DRIVER"] = str(stand_in(bench))
    began = time.monotonic()
    done = subprocess.run(words(bench, kind, steps, gib), env=env, capture_output=True, text=True, check=True)
    own = re.search(r"checksum (\d+) trained ([\d.]+)", done.stdout)
    return time.monotonic() - began, float(own.group(2)), own.group(1)


def aside_rows(rows, events):
    """What came of each job: how often it was put aside, how long that took each time, and how long it was away."""
    table = []
    for row in rows:
        own = [one for one in events if one["job"] == row["id"]]
        out = [spent(one["text"]) for one in own if one["kind"] == "suspended"]
        back = [spent(one["text"]) for one in own if one["kind"] == "resumed"]
        went = [one["at"] for one in own if one["kind"] == "suspended"]
        asked = [one["at"] for one in own if one["kind"] == "resuming"]
        table.append({
            "job": row["name"],
            "state": row["state"],
            "attempts": row["attempt"],
            "completion_s": round(row["ended"] - row["submitted"], 1),
            "put_aside": len(out),
            "brought_back": len(back),
            "refused": sum(one["kind"] == "not-suspended" for one in own),
            "out_s": round(sum(out), 2),
            "back_s": round(sum(back), 2),
            "away_s": round(sum(asked) - sum(went), 1) if len(asked) == len(went) else None,
            "memory_mib": max((taken(one["text"]) for one in own if one["kind"] == "suspended"), default=0),
        })
    return table


def spent(text):
    """The seconds of the driver that an event tells."""
    return float(re.search(r"([\d.]+) s$", text).group(1))


def taken(text):
    """The host memory that an event tells, in MiB."""
    return int(re.search(r": (\d+) MiB of host memory", text).group(1))


def away_most(events):
    """The most host memory that was taken at once, and the most jobs, by what was measured of each as it went."""
    away, most, jobs = {}, 0, 0
    for one in events:
        if one["kind"] == "suspended":
            away[one["job"]] = taken(one["text"])
        elif one["kind"] in ("resumed", "finished", "failed", "ended"):
            away.pop(one["job"], None)
        most, jobs = max(most, sum(away.values())), max(jobs, len(away))
    return most, jobs


def length_of(bench, seconds, memory):
    """Steps for jobs of so many seconds, what one takes alone from start to end, its start, and its checksum."""
    if bench.given.device == "driver":
        solo, trained, checksum = alone(bench, "medium", 100, memory)
        return 100, solo, solo - trained, checksum
    tried = 300
    whole, trained, checksum = alone(bench, "medium", tried, memory)
    start = whole - trained
    # It must train for longer than a turn goes on after its start.
    train = max(12.0, seconds - start)
    return max(tried, round(tried * train / trained)), start + train, start, checksum


def aside(bench, count=10, memory_gib=16, limit_gib=64, seconds=26):
    """Ten unmodified jobs of 16 GB take turns on one GPU under Gandiva; never more than 64 GB of them are put aside.

    A turn lasts until a job has used the GPU for some seconds, and each job has some seconds more to do then, so that each
    is put aside where others wait and there is room. It takes about ten times what one takes alone and two minutes.
    """
    dry = bench.given.device == "driver"
    # In a dry run as much is put aside in proportion, of memory that is not there. A job holds what it states less its
    # context and its model.
    memory, limit = (1, 4) if dry else (memory_gib, limit_gib)
    held = memory if dry else memory - 1.75
    steps, solo, start, checksum = length_of(bench, seconds, held)
    bench.say(f"alone: {solo:.1f} s, of which {start:.1f} s to start; {steps} steps")
    least, quantum = ("1s", "1s") if dry else (f"{start + 2:.0f}s", "5s")
    # The turns are as long as a job must run undisturbed: by the part that changes may take they would be ten minutes long.
    policy = f"gandiva:quantum={quantum},overhead=1,packing=off"
    daemon = bench.keep(Daemon(bench, policy, f"{limit}GiB,away=1h", least=least))
    watch, looks = bench.watch(), {"most": 0}

    def look(_):
        told = daemon.ask("/v1/status").get("aside") or {"used_mib": 0}
        looks["most"] = max(looks["most"], told["used_mib"])

    began = time.monotonic()
    for number in range(count):
        daemon.submit(f"plain-{number}", words(bench, "medium", steps, held), memory, solo)
    rows = daemon.until_over(look)
    whole = time.monotonic() - began
    watch.end()
    logs = [daemon.log(row["id"]) for row in rows]
    alike = sum(f"checksum {checksum} " in log for log in logs)
    (bench.out / "aside-events.txt").write_text(daemon.run("events"))
    events = daemon.ask("/v1/events?max=10000")["events"]
    table = aside_rows(rows, events)
    with open(bench.out / "aside.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    most, jobs = away_most(events)
    times = [row["completion_s"] for row in table]
    figures = {
        "solo_s": round(solo, 1),
        "whole_s": round(whole, 1),
        "whole_of_solo": round(whole / (count * solo), 3),
        "mean_completion_s": round(sum(times) / count, 1),
        "one_after_the_other_s": round(solo * (count + 1) / 2, 1),
        "finished": sum(row["state"] == "finished" for row in rows),
        "attempts": sum(row["attempt"] for row in rows),
        "put_aside": sum(row["put_aside"] for row in table),
        "brought_back": sum(row["brought_back"] for row in table),
        "jobs_put_aside": sum(row["put_aside"] > 0 for row in table),
        "refused": sum(row["refused"] for row in table),
        "out_s_mean": mean_of(table, "out_s", "put_aside"),
        "back_s_mean": mean_of(table, "back_s", "brought_back"),
        "away_at_once_most": jobs,
        "measured_mib_most": most,
        "counted_mib_most": looks["most"],
        "nvml_looks": watch.looks,
        "nvml_mib_most": watch.together >> 20,
        "checksums_alike": alike,
    }
    # Ten jobs that ran one after the other show nothing of what this part is for.
    aside_and_back = 0 < figures["put_aside"] == figures["brought_back"]
    within = max(most, looks["most"]) <= limit * 1024
    if not aside_and_back or figures["finished"] != count or alike != count or not within:
        raise RuntimeError(f"not all of it held: {figures}")
    return {"figures": figures, "jobs": table}


def mean_of(table, what, count):
    """Seconds each time."""
    times = sum(row[count] for row in table)
    return round(sum(row[what] for row in table) / times, 2) if times else None


def lengths(bench):
    """What each job of the queue takes alone."""
    dry = bench.given.device == "driver"
    found = {}
    for number, (kind, steps, short) in enumerate(QUEUE):
        whole, trained, _ = alone(bench, kind, short if dry else steps, 0)
        found[number] = (trained, whole - trained)
        bench.say(f"job {number}, {kind}: {trained:.1f} s of {whole:.1f} s alone")
    (bench.out / "lengths.json").write_text(json.dumps(found))
    return {"figures": {f"job {number} alone, s": round(sum(value), 2) for number, value in found.items()}}


def known_lengths(bench):
    """Those that were measured."""
    file = bench.out / "lengths.json"
    if not file.exists():
        raise RuntimeError("part e0 comes first: it measures what each job takes alone")
    return {int(number): value for number, value in json.loads(file.read_text()).items()}


def queue(bench, name):
    """Twelve jobs under one policy, with the simulator's forecast beside it."""
    dry, solo = bench.given.device == "driver", known_lengths(bench)
    between = 1 if dry else 4
    daemon = bench.keep(Daemon(bench, POLICIES[name], "64GiB,away=1h"))
    for number, (kind, steps, short) in enumerate(QUEUE):
        daemon.submit(f"queue-{number}", words(bench, kind, short if dry else steps, 0), 8, sum(solo[number]))
        time.sleep(between)
    rows = daemon.until_over()
    times = [row["ended"] - row["submitted"] for row in rows]
    mean = sum(times) / len(times)
    starts = [(row.get("measured") or {}).get("start") or 0 for row in (daemon.ask(f"/v1/jobs/{row['id']}") for row in rows)]
    told = forecast(bench, name, solo, between)
    return {
        "figures": {
            "mean_completion_s": round(mean, 2),
            "forecast_s": round(told, 2),
            "off": round(told / mean - 1, 3),
            "finished": sum(row["state"] == "finished" for row in rows),
            "attempts": sum(row["attempt"] for row in rows),
        },
        "times": times,
        "starts": starts,
    }


def forecast(bench, name, solo, between):
    """The simulator's mean completion for the same jobs, each start as long as it was alone on the mean."""
    trace = bench.out / "queue.csv"
    with open(trace, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "submit_s", "gpus", "duration_s", "gpu_memory_mib"])
        for number in sorted(solo):
            table.writerow([f"queue-{number}", number * between, 1, round(solo[number][0], 3), 8192])
    words = [str(bench.bin / "trainyard"), "sim", str(trace), "--cluster", "1x1 h200", "--policy", POLICIES[name]]
    start = sum(start for _, start in solo.values()) / len(solo)
    words += ["--costs", f"flat save=0s start={start:.3f}s", "--estimate-error", "0", "--suspend-memory", "64GiB,away=1h", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"sim: {done.stderr.strip()}")
    found = measure(json.loads(done.stdout), "jct_mean_s")
    if found is None:
        raise RuntimeError("the simulator's answer has no mean completion")
    return float(found)


def measure(told, name):
    """The first figure of that name, however deep."""
    if isinstance(told, dict):
        if isinstance(told.get(name), (int, float)):
            return told[name]
        told = list(told.values())
    for inner in told if isinstance(told, list) else []:
        found = measure(inner, name)
        if found is not None:
            return found
    return None


PARTS = {
    "f": lambda bench: bench.step("f ten jobs put aside", 460, lambda: aside(bench)),
    "e0": lambda bench: bench.step("e0 alone", 460, lambda: lengths(bench)),
    **{
        f"e-{name}": lambda bench, name=name: bench.step(f"e {name}", 460, lambda: queue(bench, name))
        for name in POLICIES
    },
}
