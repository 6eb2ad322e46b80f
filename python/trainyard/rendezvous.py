"""Where the workers of one job meet, and meet again when their number changes.

An agent, one process for the job, starts workers and says who belongs to the next *generation*. Workers talk to it by
lines of JSON over TCP on this machine; a secret that only the job's processes know lets them in. A worker that trains
hears of a new generation at once, but goes over at a step that all workers agree on (:mod:`trainyard.resize`).

Standard library only: an agent does not load PyTorch.
"""

import hmac
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time

from .session import SAVED

#: How workers find their agent.
ADDRESS, SECRET, MEMBER = "TRAINYARD_RENDEZVOUS", "TRAINYARD_RENDEZVOUS_SECRET", "TRAINYARD_MEMBER"
#: Seconds within which a worker must have started and joined.
JOIN_SECONDS = 300.0


class Agent:
    """Starts workers, keeps as many as it is told to, and ends with them.

    ``command`` starts one worker; ``devices`` are what its workers may use, one each, as ``CUDA_VISIBLE_DEVICES`` has
    them, or a number of workers that see no GPU.
    """

    def __init__(self, command, devices, environ=None):
        self.command = list(command)
        self.environ = dict(os.environ if environ is None else environ)
        self._lock = threading.Condition()
        self._secret = secrets.token_hex(16)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._members = {}  # number: _Member
        self._next = 0
        self._generation = 0
        self._present = []  # members of the generation that trains, by rank
        self._coming = None  # members of the one that was announced
        self._wanted = _devices(devices)
        self._stopping = False
        threading.Thread(target=self._accept, daemon=True).start()

    def resize(self, devices):
        """Says how many workers there shall be, and on what. Takes effect when new ones are there and all have met."""
        wanted = _devices(devices)
        if not wanted:
            raise ValueError("a job cannot have no worker: stop it instead")
        with self._lock:
            self._wanted = wanted
            self._lock.notify_all()

    @property
    def sizes(self):
        """How many workers train now, and in which generation."""
        with self._lock:
            return len(self._present), self._generation

    @property
    def devices(self):
        """What the workers train on, once no worker comes or goes any more; None until then."""
        with self._lock:
            if self._coming is not None or set(self._members) != set(self._present):
                return None
            return [self._members[number].device for number in self._present]

    def stop(self):
        """Asks every worker to save and exit."""
        with self._lock:
            self._stopping = True
            for member in self._members.values():
                member.tell(type="stop")

    def run(self):
        """Starts the workers and follows them; the exit code of the job."""
        while True:
            with self._lock:
                code = self._look()
                if code is not None:
                    self._listener.close()
                    return code
                self._lock.wait(0.05)

    # Inside; the lock is held.

    def _look(self):
        codes = {number: member.process.poll() for number, member in self._members.items()}
        if self._stopping and not self._present:
            # No worker has begun to train, so that there is nothing to save.
            self._kill()
            return SAVED
        for number, code in codes.items():
            if code is None:
                continue
            if self._members[number].left and code == 0:
                del self._members[number]
            elif code == SAVED:
                # It was asked by a signal, as all of them were: they leave at the same step.
                self._stopping = True
            elif code != 0:
                # The others may wait in a collective for ever.
                self._kill()
                return code if code > 0 else 1
        ends = [codes[number] for number in self._present]
        if ends and None not in ends:
            # What has not begun to train has nothing to do any more.
            self._kill()
            return SAVED if SAVED in ends else 0
        self._steer()
        return None

    def _steer(self):
        if self._stopping or self._coming is not None:
            return
        held = [number for number in self._present if number in self._members]
        # A worker keeps its device; those whose device was taken away leave.
        keep = [number for number in held if self._members[number].device in self._wanted]
        taken = {self._members[number].device for number in keep}
        joining = [n for n, member in self._members.items() if n not in self._present and not member.left]
        taken.update(self._members[number].device for number in joining)
        for device in self._wanted:
            if device not in taken:
                joining.append(self._start(device))
        stale = [n for n in joining if self._members[n].device not in self._wanted]
        for number in stale:
            # It had not begun to train.
            self._members.pop(number).process.kill()
        joining = [number for number in joining if number not in stale]
        late = [n for n in joining if not self._members[n].joined]
        for number in late:
            if time.monotonic() - self._members[number].began > JOIN_SECONDS:
                raise TimeoutError("worker %d did not join within %g s" % (number, JOIN_SECONDS))
        members = keep + joining
        if late or members == self._present or not members:
            return
        if not keep and self._present:
            # No worker would be left that has the state: one stays until another has it.
            members = [self._present[0]] + members
        self._announce(members)

    def _announce(self, members):
        self._generation += 1
        self._coming = members
        message = {"type": "generation", "number": self._generation, "members": members, "fresh": not self._present}
        for number in set(members) | set(self._present):
            self._members[number].tell(**message)

    def _start(self, device):
        number, self._next = self._next, self._next + 1
        host, port = self._listener.getsockname()
        environ = dict(self.environ)
        environ.update({ADDRESS: "%s:%d" % (host, port), SECRET: self._secret, MEMBER: str(number)})
        if isinstance(device, str):
            environ["CUDA_VISIBLE_DEVICES"] = device
        self._members[number] = _Member(subprocess.Popen(self.command, env=environ), device)
        return number

    def _kill(self):
        for member in self._members.values():
            if member.process.poll() is None:
                member.process.kill()
        for member in self._members.values():
            member.process.wait()

    # Connections.

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("r", encoding="utf-8") as lines:
            first = _message(lines.readline(4096))
            number = first.get("member")
            with self._lock:
                member = self._members.get(number)
                known = hmac.compare_digest(str(first.get("secret")), self._secret)
                if not known or member is None or member.joined:
                    return
                member.connection, member.joined = connection, True
                if self._stopping:
                    member.tell(type="stop")
                self._lock.notify_all()
            for line in lines:
                self._hear(number, _message(line))

    def _hear(self, number, message):
        kind = message.get("type")
        with self._lock:
            if kind == "address" and self._coming is not None:
                # The first of the new generation says where its store is.
                for other in self._coming:
                    self._members[other].tell(type="address", number=self._generation, port=message.get("port"))
            elif kind == "met" and self._coming is not None:
                for gone in set(self._present) - set(self._coming):
                    if gone in self._members:
                        self._members[gone].left = True
                self._present, self._coming = self._coming, None
            elif kind == "leaving" and number in self._members:
                self._members[number].left = True
            self._lock.notify_all()


class _Member:
    def __init__(self, process, device):
        self.process, self.device = process, device
        self.connection, self.joined, self.left = None, False, False
        self.began = time.monotonic()

    def tell(self, **message):
        if self.connection is None:
            return
        try:
            self.connection.sendall((json.dumps(message) + "\n").encode())
        except OSError:
            # Its end is seen by its process.
            pass


class Seat:
    """A worker's end: what it heard of generations and stops."""

    def __init__(self, environ=None):
        environ = os.environ if environ is None else environ
        host, _, port = environ[ADDRESS].rpartition(":")
        self.member = int(environ[MEMBER])
        self.stop_requested = False
        self._heard = threading.Condition()
        self._generation, self._address = None, {}
        self._connection = socket.create_connection((host, int(port)), timeout=30)
        self._connection.settimeout(None)
        self._tell(member=self.member, secret=environ[SECRET])
        threading.Thread(target=self._listen, daemon=True).start()

    def newest(self):
        """The newest generation that was announced, as a dict; None before the first."""
        with self._heard:
            return self._generation

    def wait_generation(self, number=0, timeout=JOIN_SECONDS):
        """The newest generation once it is at least ``number`` and this worker is in it."""
        with self._heard:
            is_there = lambda: self._generation is not None and self._generation["number"] >= number  # noqa: E731
            if not self._heard.wait_for(is_there, timeout):
                raise TimeoutError("no generation was announced within %g s" % timeout)
            return self._generation

    def wait_address(self, number, timeout=JOIN_SECONDS):
        """The port of the store of a generation, once its first member said it."""
        with self._heard:
            if not self._heard.wait_for(lambda: number in self._address, timeout):
                raise TimeoutError("generation %d has no store after %g s" % (number, timeout))
            return self._address[number]

    def offer_address(self, port):
        """Says where the store of the announced generation is."""
        self._tell(type="address", port=port)

    def met(self):
        """Says that all members of the generation have met."""
        self._tell(type="met")

    def leaving(self):
        """Says that this worker exits because it is in no generation any more."""
        self._tell(type="leaving")

    def _tell(self, **message):
        self._connection.sendall((json.dumps(message) + "\n").encode())

    def _listen(self):
        try:
            with self._connection.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    message = _message(line)
                    with self._heard:
                        if message.get("type") == "generation":
                            self._generation = message
                        elif message.get("type") == "address":
                            self._address = {message["number"]: message["port"]}
                        elif message.get("type") == "stop":
                            self.stop_requested = True
                        self._heard.notify_all()
        except OSError:
            pass
        # Without its agent a worker would wait for ever for the others.
        self.stop_requested = True


def own_command():
    """The command of this process, to start it again as a worker."""
    return [sys.executable] + sys.argv


def _devices(devices):
    # Numbers stand for workers without a GPU of their own.
    return list(range(devices)) if isinstance(devices, int) else list(devices)


def _message(line):
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
