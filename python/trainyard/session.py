"""One training process and its keeper."""

import json
import os
import signal
import socket
import sys
import threading
import time

#: The exit code that means "saved, start me again".
SAVED = 85
#: Seconds between two looks at the file of orders.
ORDERS_EVERY = 0.5
#: Seconds between two messages of a rank beyond 0 at least: they only tell who is behind.
RANKS_EVERY = 10.0
#: The part of its period by which an iteration may begin beside its moment before it waits for the next.
DRIFT = 0.05


class Session:
    """What a training process knows of its run, and what it tells. Made by :func:`join`.

    All methods may be called from any thread. None raises because the keeper is away: training goes on.
    """

    def __init__(
        self,
        environ=None,
        total_steps=None,
        report_every=1.0,
        clock=time.monotonic,
        wall=time.time,
        sleep=time.sleep,
    ):
        environ = os.environ if environ is None else environ
        self.job = _int(environ.get("TRAINYARD_JOB_ID"))
        self.attempt = _int(environ.get("TRAINYARD_ATTEMPT"))
        self.rank = _int(environ.get("RANK")) or 0
        self.world_size = _int(environ.get("WORLD_SIZE")) or 1
        #: Where checkpoints belong; None without Trainyard.
        self.checkpoint_dir = environ.get("TRAINYARD_CHECKPOINT_DIR") or None
        #: Where to resume from; None for a fresh start.
        self.restore_from = environ.get("TRAINYARD_RESTORE_FROM") or None
        #: The work that the newest checkpoint holds, as Trainyard was told.
        self.resumes_from = _float(environ.get("TRAINYARD_RESUMES_FROM")) or 0.0
        #: The nodes it runs on, in order of ranks, and the rack of each; empty without Trainyard.
        self.nodes = _words(environ.get("TRAINYARD_NODES"))
        self.racks = [_int(rack) for rack in _words(environ.get("TRAINYARD_RACKS"))]
        self._shift = _float(environ.get("TRAINYARD_TIME_SHIFT"))
        self._period = _float(environ.get("TRAINYARD_TIME_PERIOD"))
        self._wall, self._sleep = wall, sleep
        self.total_steps = total_steps
        self._batch = _int(environ.get("TRAINYARD_BATCH"))
        self._parts = _parts(environ.get("TRAINYARD_BATCH_PARTS"))
        self._devices = None
        self._ack_file = environ.get("TRAINYARD_ACK_FILE") or None
        self._report_every = report_every
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._save = threading.Event()
        self._deadline = None
        self._last_report = None
        self._last_step = None
        self._rate = None
        self._previous_handlers = {}
        self._closed = threading.Event()
        self._socket = _connect(environ.get("TRAINYARD_SOCKET"))
        self._report_file = None
        if self._socket is not None:
            thread = threading.Thread(target=self._listen, args=(self._socket,), daemon=True)
            thread.start()
            return
        # Where the keeper is on another machine, both sides write lines into files that they share.
        self._report_file = environ.get("TRAINYARD_REPORT_FILE") or None
        orders = environ.get("TRAINYARD_ORDERS_FILE")
        if orders:
            thread = threading.Thread(target=self._follow, args=(orders,), daemon=True)
            thread.start()

    # What it hears.

    @property
    def active(self):
        """Whether a keeper listens."""
        return self._socket is not None or self._report_file is not None

    @property
    def batch(self):
        """The batch size over all GPUs to use now; None if the daemon sets none."""
        with self._lock:
            return self._batch

    @property
    def batch_parts(self):
        """The part of the batch for each rank, by the speed of its GPU; None where all GPUs are alike."""
        with self._lock:
            return self._parts if self._parts and len(self._parts) == self.world_size else None

    @property
    def devices(self):
        """The GPUs to use from now on, as ``CUDA_VISIBLE_DEVICES`` names them; None while they are those of the start."""
        with self._lock:
            return self._devices

    @property
    def stop_requested(self):
        """Whether the job should save and exit."""
        return self._stop.is_set()

    @property
    def seconds_left(self):
        """Seconds until the job is killed; None if no stop was asked for or the time is not known."""
        with self._lock:
            return None if self._deadline is None else max(0.0, self._deadline - self._clock())

    @property
    def save_requested(self):
        """Whether the job should save and go on; :meth:`saved` answers it."""
        return self._save.is_set()

    def stop_agreed(self):
        """Whether any rank was asked to stop: the same answer on every rank, at the cost of a small all-reduce.

        Ranks hear of a stop at different moments. One that leaves its loop a step before the others leaves them waiting
        in a collective, so ranks that train together ask this and not :attr:`stop_requested`.
        """
        torch = sys.modules.get("torch")
        distributed = getattr(torch, "distributed", None)
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return self.stop_requested
        device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
        flag = torch.tensor([int(self.stop_requested)], device=device)
        distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
        if bool(flag.item()):
            self._stop.set()
        return self.stop_requested

    def request_stop(self):
        """Asks for a stop, as a signal does."""
        self._stop.set()

    def catch(self, *signals):
        """Turns signals into :attr:`stop_requested`. Only the main thread can; elsewhere it does nothing."""
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in signals or (signal.SIGTERM,):
            previous = signal.getsignal(number)
            signal.signal(number, lambda *_: self._stop.set())
            self._previous_handlers.setdefault(number, previous)
        return self

    def align(self):
        """Waits for the next moment of the job's time shift; returns the seconds waited.

        Jobs that share links are told when their iterations begin, so that they send in turns. An iteration that begins
        within 5 % of its period from its moment does not wait, and neither does a job without a time shift.
        :meth:`steps` calls it.
        """
        if self._shift is None or not self._period or self._period <= 0:
            return 0.0
        off = (self._wall() - self._shift) / self._period % 1.0
        if off <= DRIFT or off >= 1.0 - DRIFT:
            return 0.0
        wait = (1.0 - off) * self._period
        self._sleep(wait)
        return wait

    # What it tells.

    def steps(self, start=0, stop=None):
        """Step numbers from ``start`` until all work is done. A stop does not end it: ranks must stop at one step."""
        stop = self.total_steps if stop is None else stop
        step = int(start or 0)
        while stop is None or step < stop:
            self.align()
            yield step
            step += 1

    def step(self, done, **fields):
        """Tells that ``done`` steps are done in all; returns whether a stop is requested.

        The rate is measured here. Fields are those of a progress message: ``loss``, ``epoch``, ``batch``,
        ``accumulation``, ``noise_scale``, ``step_seconds``, ``sync_seconds``. Cheap enough for every step: a message
        is sent at most every ``report_every`` seconds, the first at once. Ranks beyond 0 tell only how far they are,
        so that one that hangs can be named.
        """
        now = self._clock()
        with self._lock:
            self._measure(done, now)
            every = self._report_every if self.rank == 0 else max(self._report_every, RANKS_EVERY)
            due = self._last_report is None or now - self._last_report >= every
            if due:
                self._last_report = now
            rate = self._rate
        if due and self.rank != 0:
            self.progress(done=float(done), rank=self.rank)
        elif due:
            message = {"done": float(done), "total": self.total_steps, "rate": rate}
            if rate:
                message["step_seconds"] = 1.0 / rate
            if self.world_size > 1:
                message["rank"] = 0
            message.update(fields)
            self.progress(**message)
        return self.stop_requested

    def progress(self, **fields):
        """Sends a progress message as it is; fields that are None or no number are left out."""
        message = {name: _number(value) for name, value in fields.items()}
        self._tell("progress", **{k: v for k, v in message.items() if v is not None})

    def saving(self):
        """Tells that it begins to write a checkpoint: until :meth:`saved` it is not late."""
        self._tell("saving")

    def saved(self, done, seconds=None):
        """Tells that the state of ``done`` steps is on disk.

        After a stop was requested, this acknowledges it and ends the grace: an exit with 0 that follows is a stop. Before,
        it acknowledges nothing, and an exit with 0 means that the job is finished.
        """
        self._save.clear()
        self._tell("saved", done=float(done), **_some(seconds=_number(seconds)))
        if self.stop_requested and self._ack_file:
            _write_whole(self._ack_file, repr(float(done)))

    def restored(self, done, seconds=None):
        """Tells that the state of ``done`` steps was read."""
        self._tell("restored", done=float(done), **_some(seconds=_number(seconds)))

    def resized(self, devices):
        """Tells that it uses the GPUs of :attr:`devices` and no other any more."""
        self._tell("resized", devices=list(devices))

    def finished(self):
        """Tells that all work is done: the job does not run again, however its processes end. Call it last."""
        self._tell("finished")

    def exit_saved(self, done, seconds=None):
        """Tells that the state is on disk and exits with the code that means "start me again"."""
        self.saved(done, seconds)
        sys.stdout.flush()
        sys.exit(SAVED)

    def close(self):
        """Ends the conversation and gives signals back."""
        if threading.current_thread() is threading.main_thread():
            for number, previous in self._previous_handlers.items():
                signal.signal(number, previous if previous is not None else signal.SIG_DFL)
            self._previous_handlers.clear()
        self._closed.set()
        with self._lock:
            connection, self._socket = self._socket, None
            self._report_file = None
        if connection is not None:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Inside.

    def _measure(self, done, now):
        if self._last_step is not None:
            steps, seconds = done - self._last_step[0], now - self._last_step[1]
            if steps > 0 and seconds > 0:
                rate = steps / seconds
                # The weight of the past halves about every five steps, so that a change shows soon.
                self._rate = rate if self._rate is None else 0.87 * self._rate + 0.13 * rate
        self._last_step = (done, now)

    def _tell(self, kind, **fields):
        line = (json.dumps(dict(fields, type=kind)) + "\n").encode()
        with self._lock:
            if self._report_file is not None:
                _append(self._report_file, line)
            if self._socket is None:
                return
            try:
                self._socket.sendall(line)
            except OSError:
                # The keeper is gone or stuck; a half-sent line would spoil the next.
                self._socket.close()
                self._socket = None

    def _listen(self, connection):
        try:
            with connection.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    self._hear(line)
        except (OSError, ValueError):
            pass

    def _follow(self, path):
        """Hears what is written into a file, from its beginning, until the session is closed."""
        heard = 0
        while not self._closed.is_set():
            try:
                with open(path, "rb") as file:
                    file.seek(heard)
                    # A line that is not whole yet is read again.
                    whole, end, _ = file.read().rpartition(b"\n")
            except OSError:
                whole, end = b"", b""
            heard += len(whole) + len(end)
            for line in whole.splitlines():
                self._hear(line.decode(errors="replace"))
            self._closed.wait(ORDERS_EVERY)

    def _hear(self, line):
        try:
            message = json.loads(line)
            kind = message.get("type")
        except (ValueError, AttributeError):
            return
        if kind == "stop":
            with self._lock:
                self._deadline = self._clock() + float(message.get("grace_seconds", 0.0))
            self._stop.set()
        elif kind == "save":
            self._save.set()
        elif kind == "batch":
            with self._lock:
                self._batch = _int(message.get("size")) or self._batch
        elif kind == "resize":
            devices = message.get("devices")
            if isinstance(devices, list) and devices and all(isinstance(one, str) for one in devices):
                with self._lock:
                    self._devices = devices


def join(total_steps=None, report_every=1.0, catch=True):
    """Joins the run that this process belongs to; without one, everything does nothing.

    With ``catch``, the signal that asks for a stop sets :attr:`Session.stop_requested` instead of ending the process.
    """
    session = Session(total_steps=total_steps, report_every=report_every)
    if catch and session.job is not None:
        name = os.environ.get("TRAINYARD_CHECKPOINT_SIGNAL") or "TERM"
        name = name.upper() if name.upper().startswith("SIG") else "SIG" + name.upper()
        session.catch(getattr(signal, name, signal.SIGTERM))
    return session


def _connect(path):
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def _append(path, line):
    # One write for a line: a process that reads meanwhile sees it whole or in part, and never mixed with another line.
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except OSError:
        pass


def _write_whole(path, text):
    partial = path + ".partial"
    try:
        with open(partial, "w") as file:
            file.write(text)
        os.replace(partial, path)
    except OSError:
        pass


def _number(value):
    """A plain finite number of whatever behaves like one, such as a tensor of one element."""
    if value is None:
        return None
    try:
        number = value if isinstance(value, int) else float(value)
    except (TypeError, ValueError):
        return None
    if isinstance(number, bool) or number != number or number in (float("inf"), float("-inf")):
        return None
    return number


def _some(**fields):
    return {name: value for name, value in fields.items() if value is not None}


def _int(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _words(text):
    return text.split(",") if text else []


def _parts(text):
    parts = [_float(part) for part in text.split(",")] if text else []
    return parts if parts and all(part and part > 0 for part in parts) else None


def _float(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
