"""What shares, caps and the library that enforces them do on a GPU: see scripts/sharing-evidence."""

import argparse
import collections
import contextlib
import csv
import ctypes
import json
import os
import pathlib
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import sharing_mps
import sharing_queue

HERE = pathlib.Path(__file__).resolve().parent
SHARES = [(500, 500), (300, 700), (100, 900)]
GIB = 1 << 30


class Failed(Exception):
    """A step that did not do what it should."""


class Late(Failed):
    """A step that took too long."""


class Program:
    """A worker that runs beside this: orders in, answers out."""

    def __init__(self, bench, name, socket=None, preload=True, env=None):
        variables = dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
        # What this itself runs under must not be measured with the rest.
        for own in ("LD_PRELOAD", "TRAINYARD_SHARING_SOCKET"):
            variables.pop(own, None)
        if preload:
            variables["LD_PRELOAD"] = str(bench.library)
        if socket:
            variables["TRAINYARD_SHARING_SOCKET"] = str(socket)
        variables.update(env or {})
        words = [bench.given.python, str(HERE / "sharing_worker.py"), bench.given.device]
        self.name = name
        self.child = subprocess.Popen(
            words, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=bench.log, text=True
        )
        self.answers = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        """Answers into a queue, so that they can be waited for with a limit."""
        for line in self.child.stdout:
            with contextlib.suppress(ValueError):
                self.answers.put(json.loads(line))
        self.answers.put({"error": "the program ended"})

    def tell(self, **order):
        """An order."""
        try:
            self.child.stdin.write(json.dumps(order) + "\n")
            self.child.stdin.flush()
        except OSError as error:
            raise Failed(f"{self.name}: {error}") from error

    def hear(self, seconds):
        """An answer."""
        try:
            answer = self.answers.get(timeout=seconds)
        except queue.Empty:
            raise Late(f"{self.name} said nothing for {seconds:.0f} s") from None
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}")
        return answer

    def end(self):
        """Ends it."""
        with contextlib.suppress(OSError):
            self.child.stdin.close()
        try:
            self.child.wait(3)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Arbiter:
    """trainyard-share with a socket for each client."""

    def __init__(self, bench, clients, options=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="share."))
        self.sockets = [self.folder / f"client{number}" for number in range(len(clients))]
        words = [f"{socket}={':'.join(map(str, client))}" for socket, client in zip(self.sockets, clients)]
        words = [str(bench.bin / "trainyard-share"), "--json", "--grace", "20s", *options, *words]
        self.child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=bench.log, text=True
        )
        if self.child.stdout.readline() != "ready\n":
            raise Failed("the arbiter did not start")

    def stats(self):
        """What it tells of its clients."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        told = json.loads(self.child.stdout.readline())
        for client in told["clients"]:
            client["socket"] = pathlib.Path(client["socket"]).name
            client["behind_us"] = {pathlib.Path(name).name: us for name, us in client["behind_us"].items()}
        return told["clients"]

    def end(self):
        """Ends it."""
        with contextlib.suppress(OSError):
            self.child.stdin.close()
        try:
            self.child.wait(3)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Nvml:
    """Memory of processes on GPU 0 as the driver's management library tells it."""

    class Process(ctypes.Structure):
        """nvmlProcessInfo_t of the third version of the call."""

        _fields_ = [
            ("pid", ctypes.c_uint),
            ("used", ctypes.c_ulonglong),
            ("instance", ctypes.c_uint),
            ("compute_instance", ctypes.c_uint),
        ]

    def __init__(self):
        self.library, self.device = None, ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)) == 0:
                self.library = library
        except OSError:
            pass

    def processes(self):
        """Bytes of each process."""
        if self.library is None:
            return {}
        count = ctypes.c_uint(64)
        rows = (Nvml.Process * 64)()
        if self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), rows) != 0:
            return {}
        unknown = (1 << 64) - 1
        return {row.pid: row.used for row in rows[: count.value] if row.used != unknown}


class Watch:
    """The most memory that NVML told of each process, looked at again and again."""

    def __init__(self):
        self.most, self.looks, self.is_over = collections.Counter(), 0, threading.Event()
        self.together = 0
        self.nvml = Nvml()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        """Twenty times a second."""
        while not self.is_over.wait(0.05):
            self.looks += 1
            found = self.nvml.processes()
            self.together = max(self.together, sum(found.values()))
            for pid, used in found.items():
                self.most[pid] = max(self.most[pid], used)

    def end(self):
        """No more."""
        self.is_over.set()
        self.thread.join(2)


class Bench:
    """Where steps run, what they leave behind, and what is written down."""

    def __init__(self, given):
        self.given, self.bin, self.out = given, pathlib.Path(given.bin), pathlib.Path(given.out)
        self.library = self.bin / "libtrainyard_preload.so"
        self.log = open(self.out / "log.txt", "a", buffering=1)
        self.start = time.monotonic()
        self.steps = self.out / "steps.jsonl"
        self.done = set()
        if self.steps.exists():
            lines = [json.loads(line) for line in self.steps.read_text().splitlines() if line]
            self.done = {line["step"] for line in lines if line["ok"]}
        self.open = []

    def left(self):
        """Seconds until the budget is used up."""
        return self.given.budget - (time.monotonic() - self.start)

    def say(self, text):
        """To the screen and the log."""
        line = f"[{time.monotonic() - self.start:6.1f}] {text}"
        print(line, flush=True)
        print(line, file=self.log)

    def keep(self, thing):
        """Ended when the step is over, however it ends."""
        self.open.append(thing)
        return thing

    def watch(self):
        """NVML, looked at until the step is over."""
        return self.keep(Watch())

    def program(self, *words, **more):
        """A worker."""
        return self.keep(Program(self, *words, **more))

    def arbiter(self, *words, **more):
        """An arbiter."""
        return self.keep(Arbiter(self, *words, **more))

    def tidy(self):
        """Ends what a step left."""
        for thing in reversed(self.open):
            with contextlib.suppress(Exception):
                thing.end()
        self.open.clear()

    def step(self, name, seconds, work):
        """Does one step within a limit, and writes down what came of it."""
        if name in self.done:
            return self.say(f"{name}: done already")
        if self.left() < 15:
            return self.say(f"{name}: NOT DONE, the budget is used up")
        seconds = min(seconds, self.left() - 5)
        self.say(f"{name}: begins")
        began, row = time.monotonic(), {"step": name}
        try:
            signal.alarm(max(1, int(seconds)))
            row.update(ok=True, result=work())
        except Exception as error:  # One step that fails is no reason to leave out the rest.
            row.update(ok=False, error=f"{type(error).__name__}: {error}")
        finally:
            signal.alarm(0)
            self.tidy()
        row["seconds"] = round(time.monotonic() - began, 1)
        with open(self.steps, "a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.say(f"{name}: {json.dumps(row)[:600]}")
        self.summarise()

    def summarise(self):
        """All figures so far, a row for each."""
        with open(self.out / "summary.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["step", "what", "value"])
            for line in self.steps.read_text().splitlines():
                row = json.loads(line)
                if not row["ok"]:
                    table.writerow([row["step"], "failed", row["error"]])
                    continue
                for what, value in row["result"].get("figures", {}).items():
                    table.writerow([row["step"], what, value])


def together(programs, seconds, **order):
    """The same order for all, and their answers."""
    for program in programs:
        program.tell(**order)
    return [program.hear(seconds) for program in programs]


def begin(programs, kinds):
    """Waits until all are there and have warmed up."""
    for program in programs:
        program.hear(90)
    for kind in kinds:
        together(programs, 120, do="warm", kind=kind)


def rate(program, kind, seconds):
    """Steps per second of one program now."""
    start = time.monotonic() + 0.05
    program.tell(do="run", kind=kind, start=start, marks=[start + 0.2, start + 0.2 + seconds])
    (first, done), (last, all_done) = program.hear(seconds + 30)["counts"]
    return (all_done - done) / (last - first)


def probe(bench):
    """What machine this is, and that the library is loaded and hooks."""
    figures = {}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        figures["gpu"] = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    figures["kernel"] = os.uname().release
    arbiter = bench.arbiter([(1000, 1000, 8192)])
    hooked = bench.program("hooked", socket=arbiter.sockets[0])
    begin([hooked], ["small"])
    figures["small_steps_s"] = round(rate(hooked, "small", 0.5), 1)
    (told,) = together([hooked], 30, do="told")
    client = arbiter.stats()[0]
    figures.update(hellos=client["hellos"], turns=client["turns"], total_mib=told["total"] >> 20)
    if client["turns"] == 0:
        raise Failed(f"the library does not hook this program's launches: {client} {told}")
    return {"figures": figures, "told": told, "client": client}


def shares(bench, both, windows, length, kind="medium"):
    """Two equal programs with work all the time: what each gets of it, for several windows."""
    arbiter = bench.arbiter([(request, 1000) for request in both])
    programs = [bench.program(f"of {request}", socket=socket) for request, socket in zip(both, arbiter.sockets)]
    begin(programs, [kind])
    # Shares hold over each ten seconds, so windows are multiples of that; who runs alone before would be owed less.
    start = time.monotonic() + 0.2
    marks = [start + 3 + length * number for number in range(windows + 1)]
    for program in programs:
        program.tell(do="run", kind=kind, start=start, marks=marks)
    used = []
    for mark in marks:
        time.sleep(max(0, mark - time.monotonic()))
        used.append([client["held_us"] for client in arbiter.stats()])
    counts = [program.hear(60)["counts"] for program in programs]
    clients = arbiter.stats()
    alone = [rate(program, kind, 2) for program in programs]
    figures, seen = {}, []
    for number in range(windows):
        rates = []
        for count in counts:
            (first, done), (last, all_done) = count[number], count[number + 1]
            rates.append((all_done - done) / (last - first))
        held = [after - before for before, after in zip(used[number], used[number + 1])]
        share = rates[0] / sum(rates)
        seen.append(share)
        figures[f"share_of_steps_{number}"] = round(share, 4)
        figures[f"share_of_turns_{number}"] = round(held[0] / max(1, sum(held)), 4)
        figures[f"turns_of_time_{number}"] = round(sum(held) / (length * 1e6), 4)
        figures[f"sum_of_normalised_{number}"] = round(sum(r / a for r, a in zip(rates, alone)), 4)
    figures["wanted"] = both[0] / 1000
    figures["worst_error_points"] = round(max(abs(share - both[0] / 1000) for share in seen) * 100, 2)
    figures["alone_steps_s"] = [round(value, 2) for value in alone]
    return {"figures": figures, "clients": clients}


def overhead(bench, rounds, length):
    """The same programs without the library, with it, and with turns, one after the other, again and again."""
    arbiter = bench.arbiter([(1000, 1000)])
    programs = {
        "plain": bench.program("plain", preload=False),
        "loaded": bench.program("loaded"),
        "turns": bench.program("turns", socket=arbiter.sockets[0]),
    }
    kinds = {"heavy": length, "medium": length, "launch": length * 0.7}
    begin(list(programs.values()), list(kinds))
    seen = collections.defaultdict(list)
    for number in range(rounds):
        names = list(programs)
        for name in names[number % 3 :] + names[: number % 3]:
            for kind, seconds in kinds.items():
                seen[name, kind].append(rate(programs[name], kind, seconds))
    figures = {}
    for kind in kinds:
        plain = seen["plain", kind]
        figures[f"{kind}_step_ms_plain"] = round(1000 / statistics.median(plain), 4)
        for name in ("loaded", "turns"):
            ratios = [1 - own / other for own, other in zip(seen[name, kind], plain)]
            figures[f"{kind}_overhead_percent_{name}"] = round(100 * statistics.median(ratios), 3)
    for name in programs:
        launches = statistics.median(seen[name, "launch"]) * 500
        figures[f"launch_us_{name}"] = round(1e6 / launches, 3)
    rates = {f"{name} {kind}": [round(value, 3) for value in values] for (name, kind), values in seen.items()}
    return {"figures": figures, "rates": rates}


def caps(bench, cap_mib, seconds):
    """Programs that allocate all they can beside one that trains: by three ways of allocating."""
    ways = {"malloc": {}}
    if bench.given.device == "torch":
        ways["expandable"] = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        ways["async"] = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    arbiter = bench.arbiter([(100, 1000, cap_mib)] * len(ways) + [(500, 1000)])
    greedy = {
        way: bench.program(way, socket=socket, env=env)
        for (way, env), socket in zip(ways.items(), arbiter.sockets)
    }
    beside = bench.program("beside", socket=arbiter.sockets[-1])
    watch = bench.keep(Watch())
    begin([*greedy.values(), beside], ["small"])
    before = Nvml().processes()
    reserved = {way: together([program], 30, do="told")[0]["reserved"] or 0 for way, program in greedy.items()}
    contexts = {way: before.get(program.child.pid, 0) - reserved[way] for way, program in greedy.items()}
    first = rate(beside, "small", 1)
    start = time.monotonic() + 0.1
    beside.tell(do="run", kind="small", start=start, marks=[start + 0.5, start + 0.5 + seconds])
    chunk = (cap_mib << 20) // 32
    answers = dict(
        zip(greedy, together(list(greedy.values()), seconds + 60, do="fill", chunk=chunk, most=64 * chunk, hold=2))
    )
    (begun, done), (last, all_done) = beside.hear(seconds + 60)["counts"]
    figures = {"cap_mib": cap_mib, "nvml_looks": watch.looks, "beside_steps_s_before": round(first, 1)}
    figures["beside_steps_s_meanwhile"] = round((all_done - done) / (last - begun), 1)
    for way, program in greedy.items():
        most = watch.most.get(program.child.pid, 0)
        figures[f"{way}_refused"] = answers[way]["refused"]
        figures[f"{way}_taken_mib"] = answers[way]["taken"] >> 20
        figures[f"{way}_told_total_mib"] = answers[way]["told"]["total"] >> 20
        figures[f"{way}_nvml_most_mib"] = most >> 20
        figures[f"{way}_nvml_context_mib"] = contexts[way] >> 20
        figures[f"{way}_beyond_cap_mib"] = (most - contexts[way] - (cap_mib << 20)) / (1 << 20) if most else None
        figures[f"{way}_goes_on"] = answers[way]["refused_after_free"] is None
    return {"figures": figures, "answers": answers, "clients": arbiter.stats()}


def order(bench, count, seconds, ways, kind="small"):
    """Equal programs that begin at once: when each is done, plain and with turns, eager and as graphs."""
    figures, finishes, alone = {}, {}, {}
    for regime in ("plain", "turns"):
        arbiter = bench.arbiter([(1000 // count, 1000)] * count) if regime == "turns" else None
        sockets = arbiter.sockets if arbiter else [None] * count
        programs = [bench.program(f"{regime} {n}", socket=sockets[n], preload=bool(arbiter)) for n in range(count)]
        begin(programs, [f"{kind}{way}" for way in ways])
        for way in ways:
            if regime == "plain":
                # Measured once: who runs alone with turns is owed less of the next ten seconds.
                alone[way] = rate(programs[0], f"{kind}{way}", 1)
                figures[f"alone{way or '-eager'}_steps_s"] = round(alone[way], 1)
            steps = max(10, int(alone[way] * seconds / count))
            start = time.monotonic() + 0.3
            done = together(programs, seconds * 6 + 30, do="count", kind=f"{kind}{way}", start=start, count=steps)
            took = sorted(answer["end"] - start for answer in done)
            name = regime + (way or "-eager")
            finishes[name] = [round(value, 3) for value in took]
            figures[f"{name}_first_s"], figures[f"{name}_last_s"] = round(took[0], 3), round(took[-1], 3)
            figures[f"{name}_spread_percent"] = round(100 * (took[-1] - took[0]) / statistics.mean(took), 2)
            figures[f"{name}_of_solo_percent"] = round(100 * steps * count / took[-1] / alone[way], 1)
            bench.say(f"order {name}: {finishes[name]}")
        bench.tidy()
    return {"figures": figures, "finishes": finishes}


def quick(bench):
    """The essentials of all parts."""
    bench.step("probe", 90, lambda: probe(bench))
    for both in SHARES:
        bench.step(f"shares {both[0]}/{both[1]}", 110, lambda: shares(bench, both, 2, 20))
    bench.step("caps", 80, lambda: caps(bench, 8192, 5))
    bench.step("overhead", 120, lambda: overhead(bench, 5, 1.3))
    bench.step("order", 110, lambda: order(bench, 4, 8, ["", "-graph"]))
    for both in SHARES:
        if bench.left() > 50:
            bench.step(f"shares {both[0]}/{both[1]} again", 60, lambda: shares(bench, both, 1, 20))


def part_a(bench, number):
    """Shares over 60 s."""
    for both in SHARES:
        bench.step(f"a{number} {both[0]}/{both[1]}", 140, lambda: shares(bench, both, 1, 60))


PARTS = {
    "quick": quick,
    "a1": lambda bench: part_a(bench, 1),
    "a2": lambda bench: part_a(bench, 2),
    "a3": lambda bench: part_a(bench, 3),
    "b": lambda bench: bench.step("b", 400, lambda: overhead(bench, 20, 2)),
    "c": lambda bench: [
        bench.step(f"c {mib} MiB", 150, lambda: caps(bench, mib, 10)) for mib in (4096, 16384, 32768)
    ],
    "d": lambda bench: [
        bench.step("d four", 200, lambda: order(bench, 4, 15, ["", "-graph", "-fused"])),
        bench.step("d eight", 200, lambda: order(bench, 8, 15, ["", "-graph"])),
    ],
}


PARTS.update(sharing_queue.PARTS)
PARTS.update(sharing_mps.PARTS)


def alarmed(*_):
    """A step has taken too long."""
    raise Late("the step took too long")


def main():
    """One part."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("part", choices=PARTS)
    reader.add_argument("bin")
    reader.add_argument("out")
    reader.add_argument("--budget", type=float, default=470)
    reader.add_argument("--python", default=sys.executable)
    reader.add_argument("--mps-control", default="nvidia-cuda-mps-control")
    reader.add_argument("--device", choices=["torch", "driver"], default="torch")
    given = reader.parse_args()
    signal.signal(signal.SIGALRM, alarmed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if given.part == "quick" and given.budget > 420:
        given.budget = 420
    bench = Bench(given)
    try:
        PARTS[given.part](bench)
    finally:
        bench.tidy()
        bench.say("over")


if __name__ == "__main__":
    main()
