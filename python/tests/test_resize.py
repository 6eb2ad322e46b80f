"""Ranks that come and go while a real training runs, on the CPUs of this machine by gloo."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

try:
    import torch
except ImportError:
    torch = None

from trainyard.rendezvous import Agent
from trainyard.resize import _follow
from trainyard.session import Session

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 120.0


class Keeper:
    """The job's keeper, to which the agent and its workers connect; it says sizes and hears of steps."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.connections, self.done, self.newest = [], 0, None
        self.resized = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            if self.newest:
                connection.sendall(self.newest)
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection):
        for line in connection.makefile("r"):
            message = json.loads(line)
            if message["type"] == "progress" and message.get("rank", 0) == 0:
                self.done = max(self.done, message["done"])
            elif message["type"] == "resized":
                self.resized.append(message["devices"])

    def say(self, **message):
        self.newest = (json.dumps(message) + "\n").encode()
        for connection in self.connections:
            try:
                connection.sendall(self.newest)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()


@unittest.skipIf(torch is None, "PyTorch is not here")
class InPlace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.keeper = Keeper(self.folder)
        self.addCleanup(self.keeper.close)

    def start(self, *arguments, devices="none-0", **environ):
        path = os.path.join(HERE, "..", "examples", "torch_resize.py")
        # Names of no GPU: workers train on CPUs by gloo, also on a machine with fewer GPUs than workers.
        environ = dict(
            os.environ,
            PYTHONPATH=os.path.join(HERE, ".."),
            TRAINYARD_JOB_ID="7",
            TRAINYARD_SOCKET=self.keeper.path,
            TRAINYARD_CHECKPOINT_DIR=self.folder,
            CUDA_VISIBLE_DEVICES=devices,
            OMP_NUM_THREADS="1",
            **environ
        )
        process = subprocess.Popen(
            [sys.executable, path] + list(arguments), env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.addCleanup(process.kill)
        return process

    def until(self, process, done):
        end = time.monotonic() + PATIENCE
        while self.keeper.done < done:
            self.assertIsNone(process.poll(), "it ended: %s" % (process.communicate(),) if process.poll() else "")
            self.assertLess(time.monotonic(), end, "step %s of %s" % (self.keeper.done, done))
            time.sleep(0.02)

    def end(self, process, code=0):
        out, error = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, "%s%s" % (out.decode(), error.decode()))
        lines = [line.split() for line in out.decode().splitlines() if line.startswith("step ")]
        steps = [(int(l[1]), int(l[3]), int(l[5]), float(l[7]), int(l[9])) for l in lines]
        final = [float(line.split()[2]) for line in out.decode().splitlines() if line.startswith("final loss")]
        return steps, final[0] if final else None

    def unbroken(self, *arguments):
        return self.end(self.start(*arguments))

    def test_ranks_come_and_go_without_a_restart_and_the_loss_is_that_of_one_rank(self):
        _, alone = self.unbroken("--steps", "300")
        self.keeper.done = 0
        process = self.start("--steps", "300", "--step-seconds", "0.03")
        self.until(process, 5)
        self.keeper.say(type="resize", devices=["none-0", "none-1", "none-2"])
        self.until(process, 150)
        self.keeper.say(type="resize", devices=["none-1", "none-2"])
        steps, loss = self.end(process)
        self.assertEqual([step for step, *_ in steps], list(range(1, 301)), "every step once")
        worlds = [world for _, world, *_ in steps]
        changes = [world for at, world in enumerate(worlds) if at == 0 or worlds[at - 1] != world]
        self.assertEqual(changes, [1, 3, 2])
        pids = [pid for *_, pid in steps]
        # The first rank stays while ranks come; when its device goes, another that trained already is first.
        self.assertEqual(len({pid for pid, world in zip(pids, worlds) if world != 2}), 1)
        self.assertEqual(len(set(pids)), 2)
        self.assertAlmostEqual(loss, alone, delta=1e-3 * abs(alone) + 1e-5)

    def test_the_batch_grows_with_the_ranks_and_the_learning_rate_with_the_batch(self):
        process = self.start("--steps", "200", "--batch-per-rank", "24", "--step-seconds", "0.03")
        self.until(process, 3)
        self.keeper.say(type="resize", devices=["none-0", "none-1"])
        steps, _ = self.end(process)
        grown = [(size, rate) for _, world, size, rate, _ in steps if world == 2]
        self.assertEqual({size for size, _ in grown}, {48})
        self.assertAlmostEqual(grown[-1][1], 0.1, places=3)
        self.assertLess(grown[0][1], 0.07, "it is reached by a warm-up")

    def test_a_stop_is_saved_at_one_step_and_resumed_with_another_number_of_ranks(self):
        _, alone = self.unbroken("--steps", "120")
        self.keeper.done = 0
        process = self.start("--steps", "120", "--step-seconds", "0.03", devices="none-0,none-1,none-2")
        self.until(process, 20)
        process.send_signal(signal.SIGTERM)
        steps, _ = self.end(process, code=85)
        again = self.start("--steps", "120", devices="none-0,none-1", TRAINYARD_RESTORE_FROM=self.folder)
        more, loss = self.end(again)
        self.assertEqual({world for _, world, *_ in steps}, {3})
        self.assertEqual({world for _, world, *_ in more}, {2})
        self.assertEqual([step for step, *_ in steps + more], list(range(1, 121)))
        self.assertAlmostEqual(loss, alone, delta=1e-3 * abs(alone) + 1e-5)


class Meeting(unittest.TestCase):
    """The agent without PyTorch: workers are small programs."""

    def agent(self, program, devices=1):
        agent = Agent([sys.executable, "-c", program], devices, dict(os.environ, PYTHONPATH=os.path.join(HERE, "..")))
        self.addCleanup(agent._kill)
        return agent

    def test_a_worker_that_fails_ends_the_job_with_its_code_and_the_others(self):
        program = (
            "import os, sys, time\n"
            "from trainyard.rendezvous import Seat\n"
            "seat = Seat(); seat.wait_generation()\n"
            "sys.exit(3) if seat.member == 1 else time.sleep(600)\n"
        )
        agent = self.agent(program, 3)
        began = time.monotonic()
        self.assertEqual(agent.run(), 3)
        self.assertLess(time.monotonic() - began, 60)
        self.assertTrue(all(member.process.poll() is not None for member in agent._members.values()))

    def test_the_job_says_that_it_has_gone_over_when_those_that_left_are_gone(self):
        program = (
            "import os, sys, time\n"
            "from trainyard.rendezvous import Seat\n"
            "seat = Seat(); number = 0\n"
            "while True:\n"
            "    made = seat.wait_generation(number + 1); number = made['number']\n"
            "    if seat.member not in made['members']:\n"
            "        seat.leaving(); time.sleep(0.5); sys.exit(0)\n"
            "    if seat.member == made['members'][0]: seat.met()\n"
        )
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        keeper = Keeper(folder.name)
        self.addCleanup(keeper.close)
        session = Session({"TRAINYARD_SOCKET": keeper.path})
        agent = self.agent(program, ["a"])
        done = threading.Event()
        threads = [
            threading.Thread(target=agent.run, daemon=True),
            threading.Thread(target=_follow, args=(session, agent, done), daemon=True),
        ]
        for thread in threads:
            thread.start()
        self.addCleanup(done.set)
        for devices in (["a", "b", "c"], ["a"]):
            keeper.say(type="resize", devices=devices)
            until = time.monotonic() + PATIENCE
            while keeper.resized[-1:] != [devices] and time.monotonic() < until:
                time.sleep(0.02)
            self.assertEqual(keeper.resized[-1:], [devices])
            running = [member for member in agent._members.values() if member.process.poll() is None]
            self.assertEqual(sorted(member.device for member in running), devices)
        self.assertEqual(len(keeper.resized), 2, "once each")

    def test_who_does_not_know_the_secret_does_not_join(self):
        agent = self.agent("import time; time.sleep(600)")
        with agent._lock:
            number = agent._start(0)
        host, port = agent._listener.getsockname()
        for secret in ("", "0" * 32):
            with socket.create_connection((host, port)) as guest:
                guest.sendall((json.dumps({"member": number, "secret": secret}) + "\n").encode())
                guest.settimeout(10)
                self.assertEqual(guest.recv(1), b"", "it is sent away")
        self.assertFalse(agent._members[number].joined)

    def test_a_job_cannot_be_left_without_workers(self):
        with self.assertRaises(ValueError):
            self.agent("pass").resize([])


if __name__ == "__main__":
    unittest.main()
