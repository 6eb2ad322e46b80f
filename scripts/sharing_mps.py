"""Part m of scripts/sharing-evidence: two programs under MPS, one that does not find it, and a client's fault."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
THREADS = (30, 70)


class Mps:
    """The control daemon of MPS with folders of its own; it ends with the step."""

    def __init__(self, bench):
        self.bench = bench
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mps."))
        self.pipes = self.folder / "pipes"
        self.pipes.mkdir()
        (self.folder / "log").mkdir()
        self.control = control_of(bench)
        self.env = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=str(self.pipes), CUDA_MPS_LOG_DIRECTORY=str(self.folder / "log"))
        subprocess.run([self.control, "-d"], env=self.env, check=True, timeout=20, stdout=bench.log, stderr=bench.log)
        until = time.monotonic() + 10
        while self.ask("get_server_list") is None:
            if time.monotonic() > until:
                raise RuntimeError("the control daemon does not answer")
            time.sleep(0.05)

    def ask(self, line):
        """An answer; nothing where there is none."""
        done = subprocess.run(
            [self.control], env=self.env, input=line + "\n", capture_output=True, text=True, timeout=20, check=False
        )
        return done.stdout if done.returncode == 0 else None

    def servers(self):
        """Processes of servers."""
        return numbers(self.ask("get_server_list"))

    def clients(self):
        """Processes that are clients."""
        return [client for server in self.servers() for client in numbers(self.ask(f"get_client_list {server}"))]

    def status(self):
        """What the servers say of themselves."""
        return [(self.ask(f"get_server_status {server}") or "").strip() for server in self.servers()]

    def program(self, name, threads, pipes=None):
        """A worker that is a client with so much of the threads, or looks for MPS in another place."""
        env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes or self.pipes), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(threads)}
        program = self.bench.program(name, preload=False, env=env)
        if self.bench.given.device == "driver" and pipes is None:
            # The stand-in does not hear of clients by itself.
            with open(self.pipes / "clients", "a") as file:
                file.write(f"{program.child.pid}\n")
        return program

    def end(self):
        """Ends it, and keeps what it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.ask("quit -t 5")
        for file in (self.folder / "log").glob("*.log"):
            text = file.read_text(errors="replace")[-4000:]
            print(f"--- {file.name}\n{text}", file=self.bench.log)
        shutil.rmtree(self.folder, ignore_errors=True)


def control_of(bench):
    """The control program; in a dry run a link to the stand-in, told of faults by files beside it."""
    if bench.given.device != "driver":
        return shutil.which(bench.given.mps_control) or bench.given.mps_control
    folder = bench.out / "control"
    folder.mkdir(exist_ok=True)
    link = folder / "nvidia-cuda-mps-control"
    with contextlib.suppress(FileExistsError):
        link.symlink_to(HERE.parent / "crates/live/backend/tests/fixtures/mps-control")
    (folder / "status").unlink(missing_ok=True)
    return str(link)


def pretend_fault(bench):
    """In a dry run, what a fault on the GPU does to the server."""
    if bench.given.device == "driver":
        (bench.out / "control/status").write_text("FAULT\n")


def numbers(text):
    """Numbers in lines of their own."""
    return [int(line) for line in (text or "").split("\n") if line.strip().isdigit()]


def ready(programs, kind):
    """Waits until all have warmed up."""
    for program in programs:
        program.hear(90)
    for program in programs:
        program.tell(do="warm", kind=kind)
    for program in programs:
        program.hear(120)


def rates(programs, kind, length, windows=1):
    """Steps per second of all together, for each window."""
    start = time.monotonic() + 0.2
    marks = [start + 1 + length * number for number in range(windows + 1)]
    for program in programs:
        program.tell(do="run", kind=kind, start=start, marks=marks)
    counts = [program.hear(length * windows + 60)["counts"] for program in programs]
    spans = [list(zip(count, count[1:])) for count in counts]
    return [[(after[1] - before[1]) / (after[0] - before[0]) for before, after in span] for span in spans]


def threads(bench, kind="medium", length=10):
    """Two programs with 30 and 70 % of the threads: each alone without MPS, alone with it, and both together."""
    plain = bench.program("plain", preload=False)
    ready([plain], kind)
    alone = rates([plain], kind, length / 2)[0][0]
    plain.end()
    mps = bench.keep(Mps(bench))
    programs = [mps.program(f"{part} %", part) for part in THREADS]
    ready(programs, kind)
    figures = {"alone_steps_s": round(alone, 2)}
    for part, program in zip(THREADS, programs):
        figures[f"of_solo_alone_{part}"] = round(rates([program], kind, length / 2)[0][0] / alone, 4)
    both = rates(programs, kind, length, 2)
    for window in range(2):
        own = [span[window] for span in both]
        for part, value in zip(THREADS, own):
            figures[f"of_solo_together_{part}_{window}"] = round(value / alone, 4)
        figures[f"share_of_steps_{window}"] = round(own[0] / sum(own), 4)
        figures[f"sum_of_normalised_{window}"] = round(sum(own) / alone, 4)
    clients = mps.clients()
    figures["both_are_clients"] = all(program.child.pid in clients for program in programs)
    return {"figures": figures, "status": mps.status(), "clients": clients}


def fallback(bench, kind="medium", length=3):
    """A program whose pipe directory is not there beside one that finds MPS: both run, and one is a client."""
    mps = bench.keep(Mps(bench))
    found, lost = mps.program("finds", 50), mps.program("does not", 50, mps.folder / "nowhere")
    ready([found, lost], kind)
    own = rates([found, lost], kind, length)
    clients = mps.clients()
    figures = {
        "finds_is_client": found.child.pid in clients,
        "does_not_is_client": lost.child.pid in clients,
        "finds_steps_s": round(own[0][0], 2),
        "does_not_steps_s": round(own[1][0], 2),
    }
    return {"figures": figures, "clients": clients}


def fault(bench, kind="medium"):
    """One client writes where nothing is: what it hears, what its neighbour hears, and what the server says."""
    mps = bench.keep(Mps(bench))
    guilty, neighbour = mps.program("guilty", 50), mps.program("neighbour", 50)
    ready([guilty, neighbour], kind)
    before, told = mps.servers(), {}
    start = time.monotonic() + 0.1
    neighbour.tell(do="run", kind=kind, start=start, marks=[start + 1, start + 5])
    time.sleep(1.5)
    guilty.tell(do="fault")
    pretend_fault(bench)
    seen = [(0.0, mps.servers(), mps.status())]
    for name, program in (("guilty", guilty), ("neighbour", neighbour)):
        try:
            told[name] = json.dumps(program.hear(30))[:200]
        except Exception as error:  # What it says is the figure.
            told[name] = str(error)[:200]
    for wait in (0.5, 2.0):
        time.sleep(wait)
        seen.append((wait, mps.servers(), mps.status()))
    for program in (guilty, neighbour):
        program.end()
    time.sleep(1)
    seen.append(("both gone", mps.servers(), mps.status()))
    late, newcomer = None, mps.program("newcomer", 100)
    try:
        ready([newcomer], kind)
        late = round(rates([newcomer], kind, 1)[0][0], 2)
    except Exception as error:  # As above.
        late = str(error)[:200]
    figures = {
        "server_said_fault": any("FAULT" in text for _, _, status in seen for text in status),
        "server_was_replaced": bool(before) and not set(before) & set(seen[-1][1]),
        "neighbour_heard": told["neighbour"],
        "guilty_heard": told["guilty"],
        "newcomer": late,
    }
    return {"figures": figures, "servers_before": before, "seen": seen}


class Yard:
    """`trainyard serve --mps` with a state of its own; it ends with the step."""

    def __init__(self, bench):
        self.bench = bench
        self.state = pathlib.Path(tempfile.mkdtemp(prefix="yard."))
        self.yard = str(bench.bin / "trainyard")
        self.env = dict(os.environ, TRAINYARD_STATE=str(self.state))
        words = [self.yard, "serve", "--state", str(self.state), "--policy", "fifo", "--no-page", "--no-cgroups"]
        words += ["--mps", "--mps-control", control_of(bench)]
        if bench.given.device == "driver":
            words += ["--gpus", "1xh200", "--no-gpu-health"]
        self.child = subprocess.Popen(words, env=self.env, stdout=bench.log, stderr=bench.log)
        until = time.monotonic() + 30
        while self.say("ps").returncode:
            if time.monotonic() > until:
                raise RuntimeError("the daemon did not start")
            time.sleep(0.2)

    def say(self, *words):
        """A command on it."""
        return subprocess.run([self.yard, *words], env=self.env, capture_output=True, text=True, check=False)

    def submit(self, name, share, *words):
        """A job with a share; in a dry run it makes itself known to the stand-in."""
        script, variables = "exec \"$@\"", ""
        if self.bench.given.device == "driver":
            script = "[ -z $CUDA_MPS_PIPE_DIRECTORY ] || echo $$ >> $CUDA_MPS_PIPE_DIRECTORY/clients; " + script
            control = self.bench.out / "control/nvidia-cuda-mps-control"
            variables = f'\n[env]\nFAKE_DRIVER = "{self.state}"\nFAKE_MPS = "{control}"\n'
        command = json.dumps(["sh", "-c", script, "job", self.bench.given.python, *words])
        file = self.state / f"{name}.toml"
        file.write_text(
            f'name = "{name}"\ncommand = {command}\ngpus = 1\nshare = {share}\ngpu_memory = "20GiB"\nretries = 0\n{variables}'
        )
        done = self.say("submit", str(file), "--json")
        if done.returncode:
            raise RuntimeError(done.stderr)
        return str(json.loads(done.stdout)["jobs"][0])

    def until_over(self, jobs, seconds):
        """Waits until the jobs are over; their states."""
        until = time.monotonic() + seconds
        while True:
            rows = {str(row["id"]): row["state"] for row in json.loads(self.say("ps", "-a", "--json").stdout)["jobs"]}
            states = [rows.get(job, "") for job in jobs]
            if all(state in ("finished", "failed", "cancelled") for state in states) or time.monotonic() > until:
                return states
            time.sleep(0.5)

    def end(self):
        """Ends its jobs and it."""
        for row in json.loads(self.say("ps", "--json").stdout or '{"jobs": []}')["jobs"]:
            self.say("cancel", str(row["id"]))
        time.sleep(3)
        self.child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(5)
        shutil.rmtree(self.state, ignore_errors=True)


def trained(text):
    """Seconds that a job says it trained."""
    words = text.split()
    return float(words[words.index("trained") + 1]) if "trained" in words else None


def served(bench):
    """Two unmodified jobs with 0.3 and 0.7 of the GPU through the daemon: both are clients, and the last ends MPS."""
    yard = bench.keep(Yard(bench))
    steps = 100 if bench.given.device == "driver" else 1500
    jobs = [
        yard.submit(f"of{part}", part / 100, str(HERE / "sharing_job.py"), "medium", str(steps), "0") for part in THREADS
    ]
    states = yard.until_over(jobs, 180)
    events = yard.say("events").stdout
    figures = {"states": states, "none_is_astray": "no client of MPS" not in events}
    for part, job in zip(THREADS, jobs):
        figures[f"trained_s_{part}"] = trained(yard.say("logs", job).stdout)
    time.sleep(3)
    figures["mps_is_gone"] = not (yard.state / "run/mps/0").exists()
    return {"figures": figures, "events": events[-3000:]}


def served_fault(bench):
    """A job that writes where nothing is beside one that trains, through the daemon: the neighbour is not charged."""
    yard = bench.keep(Yard(bench))
    steps = 200 if bench.given.device == "driver" else 2500
    guilty = yard.submit("guilty", 0.3, str(HERE / "sharing_fault.py"), "5" if steps == 200 else "8")
    neighbour = yard.submit("neighbour", 0.7, str(HERE / "sharing_fault.py"), "never", str(steps))
    if bench.given.device == "driver":
        time.sleep(3)
        pretend_fault(bench)
        time.sleep(4)
        (bench.out / "control/status").unlink(missing_ok=True)
    states = yard.until_over([guilty, neighbour], 200)
    events = yard.say("events").stdout
    figures = {
        "guilty": states[0],
        "neighbour": states[1],
        "neighbour_was_lost_with_mps": f"job {neighbour} attempt 1: lost with MPS" in events,
        "guilty_was_lost_with_mps": f"job {guilty} attempt 1: lost with MPS" in events,
        "guilty_failed_by_itself_then": f"job {guilty} attempt 2: failed" in events,
    }
    return {"figures": figures, "events": events[-4000:]}


def part_m(bench):
    """All of it."""
    bench.step("m threads", 150, lambda: threads(bench))
    bench.step("m fallback", 80, lambda: fallback(bench))
    bench.step("m fault", 120, lambda: fault(bench))
    if (bench.bin / "trainyard").exists():
        bench.step("m served", 240, lambda: served(bench))
        bench.step("m served fault", 240, lambda: served_fault(bench))
    else:
        bench.say(f"m served: NOT DONE, there is no trainyard in {bench.bin}")


PARTS = {"m": part_m}

if __name__ == "__main__":
    sys.exit("run scripts/sharing-evidence m BIN OUT")
