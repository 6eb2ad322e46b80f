import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from trainyard import Session, join

HERE = os.path.dirname(os.path.abspath(__file__))


class Keeper:
    """The other end of the socket."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)

    def accept(self):
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(10)
        self.lines = self.connection.makefile("r")

    def hear(self):
        return json.loads(self.lines.readline())

    def say(self, **message):
        self.connection.sendall((json.dumps(message) + "\n").encode())

    def close(self):
        self.lines.close()
        self.connection.close()
        self.listener.close()


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class TimeShift(unittest.TestCase):
    """A job that is told when its iterations begin."""

    def session(self, now, **more):
        waits = []
        environ = {"TRAINYARD_TIME_SHIFT": "0.25", "TRAINYARD_TIME_PERIOD": "0.5", **more}
        return Session(environ=environ, wall=lambda: now, sleep=waits.append), waits

    def test_an_iteration_that_drifted_waits_for_its_next_moment(self):
        session, waits = self.session(1000.35)
        self.assertAlmostEqual(session.align(), 0.4, places=6)
        self.assertEqual(len(waits), 1)
        self.assertEqual(list(session.steps(0, 2)), [0, 1])
        self.assertEqual(len(waits), 3)

    def test_one_that_is_near_enough_or_was_told_nothing_does_not_wait(self):
        for now, environ in [(1000.27, {}), (1000.235, {}), (1000.4, {"TRAINYARD_TIME_PERIOD": ""})]:
            session, waits = self.session(now, **environ)
            self.assertEqual((session.align(), waits), (0.0, []))

    def test_it_knows_its_nodes_and_their_racks(self):
        session, _ = self.session(0, TRAINYARD_NODES="a,b", TRAINYARD_RACKS="0,3")
        self.assertEqual((session.nodes, session.racks), (["a", "b"], [0, 3]))


class WithFiles(unittest.TestCase):
    """Where the keeper is on another machine, both write into files."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.said, self.orders, self.ack = (
            os.path.join(self.folder.name, name) for name in ("said", "orders", "saved")
        )
        open(self.orders, "w").close()
        environ = {
            "TRAINYARD_JOB_ID": "7",
            "TRAINYARD_REPORT_FILE": self.said,
            "TRAINYARD_ORDERS_FILE": self.orders,
            "TRAINYARD_ACK_FILE": self.ack,
        }
        self.session = Session(environ, total_steps=10)
        self.addCleanup(self.session.close)

    def order(self, text):
        with open(self.orders, "a") as file:
            file.write(text)

    def test_what_it_tells_is_a_line_of_the_file(self):
        self.assertTrue(self.session.active)
        self.session.step(3, loss=0.5)
        self.session.saved(3)
        self.session.finished()
        with open(self.said) as file:
            messages = [json.loads(line) for line in file]
        self.assertEqual([m["type"] for m in messages], ["progress", "saved", "finished"])
        self.assertEqual((messages[0]["done"], messages[0]["loss"]), (3.0, 0.5))

    def test_what_it_is_told_is_heard_also_in_two_parts(self):
        self.order(json.dumps({"type": "batch", "size": 64}) + "\n" + '{"type":"stop","grace')
        waited = threading.Event()
        while self.session.batch != 64:
            self.assertFalse(waited.wait(0.02))
        self.assertFalse(self.session.stop_requested)
        self.order('_seconds":30}\nnonsense\n')
        self.assertTrue(self.session._stop.wait(30))
        self.assertLessEqual(self.session.seconds_left, 30)
        self.session.saved(4)
        with open(self.ack) as file:
            self.assertEqual(file.read(), "4.0")

    def test_a_folder_that_is_gone_does_not_end_the_training(self):
        self.folder.cleanup()
        self.session.saved(1)
        self.session.step(2)


class WithAKeeper(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.ack = os.path.join(self.folder.name, "saved")
        self.keeper = Keeper(self.folder.name)
        self.clock = Clock()
        environ = {
            "TRAINYARD_JOB_ID": "7",
            "TRAINYARD_ATTEMPT": "2",
            "TRAINYARD_SOCKET": self.keeper.path,
            "TRAINYARD_ACK_FILE": self.ack,
            "TRAINYARD_BATCH": "64",
            "TRAINYARD_BATCH_PARTS": "0.75,0.25",
            "TRAINYARD_RESUMES_FROM": "30",
            "TRAINYARD_RESTORE_FROM": "/ckpt",
            "RANK": "0",
            "WORLD_SIZE": "4",
        }
        self.session = Session(environ, total_steps=100, clock=self.clock)
        self.keeper.accept()
        self.addCleanup(self.keeper.close)
        self.addCleanup(self.session.close)

    def until(self, is_so):
        done = threading.Event()
        for _ in range(1000):
            if is_so():
                return
            done.wait(0.01)
        self.fail("it did not become so")

    def test_the_environment_is_read(self):
        session = self.session
        self.assertEqual((session.job, session.attempt, session.rank, session.world_size), (7, 2, 0, 4))
        self.assertEqual((session.restore_from, session.resumes_from, session.batch), ("/ckpt", 30.0, 64))
        self.assertTrue(session.active)

    def test_parts_of_a_batch_are_for_all_ranks_or_for_none(self):
        self.assertIsNone(self.session.batch_parts, "two parts are not for four ranks")
        for text, parts in [("0.75,0.25", [0.75, 0.25]), ("0.75,x", None), ("1,0", None), ("", None)]:
            session = Session({"WORLD_SIZE": "2", "TRAINYARD_BATCH_PARTS": text})
            self.assertEqual(session.batch_parts, parts, text)

    def test_progress_is_measured_and_sent_no_more_often_than_wanted(self):
        for done in range(31, 61):
            self.session.step(done, loss=0.5)
            self.clock.now += 0.125
        messages = [self.keeper.hear() for _ in range(3)]
        self.assertEqual([message["done"] for message in messages], [31.0, 39.0, 47.0])
        self.assertEqual(messages[0]["type"], "progress")
        self.assertEqual((messages[0]["total"], messages[0]["loss"]), (100, 0.5))
        self.assertNotIn("rate", messages[0])
        self.assertAlmostEqual(messages[2]["rate"], 8.0, places=6)
        self.assertAlmostEqual(messages[2]["step_seconds"], 0.125, places=6)

    def test_ranks_beyond_0_tell_only_how_far_they_are_and_seldom(self):
        self.session.rank = 3
        self.session.step(5, loss=0.5)
        self.session.step(6)
        self.session.saving()
        self.session.saved(5)
        self.assertEqual(self.keeper.hear(), {"type": "progress", "done": 5.0, "rank": 3})
        self.assertEqual(self.keeper.hear(), {"type": "saving"})
        self.assertEqual(self.keeper.hear()["type"], "saved")

    def test_what_is_no_number_is_left_out(self):
        self.session.progress(done=1, loss=float("nan"), noise_scale=None, epoch=3)
        self.assertEqual(self.keeper.hear(), {"type": "progress", "done": 1, "epoch": 3})

    def test_a_stop_a_save_and_a_batch_are_heard(self):
        self.keeper.say(type="batch", size=256)
        self.until(lambda: self.session.batch == 256)
        self.keeper.connection.sendall(b"nonsense\n[1]\n")
        self.keeper.say(type="something-newer")
        self.keeper.say(type="save")
        self.until(lambda: self.session.save_requested)
        self.session.saved(10)
        self.assertFalse(self.session.save_requested)
        self.assertEqual(self.keeper.hear(), {"type": "saved", "done": 10.0})
        self.assertFalse(os.path.exists(self.ack), "it was not asked to stop")
        self.keeper.say(type="stop", grace_seconds=30)
        self.until(lambda: self.session.stop_requested)
        self.assertEqual(self.session.seconds_left, 30.0)
        self.assertTrue(self.session.step(11))
        self.assertTrue(self.session.stop_agreed())
        self.session.saved(11, seconds=0.25)
        self.keeper.hear()
        self.assertEqual(self.keeper.hear(), {"type": "saved", "done": 11.0, "seconds": 0.25})
        with open(self.ack) as file:
            self.assertEqual(float(file.read()), 11.0)

    def test_a_keeper_that_goes_away_stops_nobody(self):
        self.keeper.connection.shutdown(socket.SHUT_RDWR)
        for done in range(1, 50):
            self.session.progress(done=done)
        self.session.restored(1, seconds=0.1)
        self.session.finished()


class WithoutAKeeper(unittest.TestCase):
    def test_everything_does_nothing(self):
        session = Session({}, total_steps=5)
        self.assertFalse(session.active or session.stop_requested or session.save_requested)
        self.assertEqual((session.job, session.batch, session.restore_from), (None, None, None))
        self.assertEqual((session.resumes_from, session.seconds_left), (0.0, None))
        for step in session.steps():
            self.assertFalse(session.step(step + 1, loss=1.0))
        session.saved(5)
        session.finished()
        session.close()

    def test_a_socket_that_is_not_there_is_as_good_as_none(self):
        self.assertFalse(Session({"TRAINYARD_SOCKET": "/no/such/socket"}).active)

    def test_signals_are_left_alone_unless_trainyard_runs_the_program(self):
        before = signal.getsignal(signal.SIGTERM)
        join().close()
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)

    def test_a_caught_signal_requests_a_stop_and_is_given_back(self):
        before = signal.getsignal(signal.SIGUSR1)
        with Session({}).catch(signal.SIGUSR1) as session:
            os.kill(os.getpid(), signal.SIGUSR1)
            self.assertTrue(session.stop_requested)
        self.assertEqual(signal.getsignal(signal.SIGUSR1), before)


class Examples(unittest.TestCase):
    def run_example(self, name, folder, *arguments, **environ):
        path = os.path.join(HERE, "..", "examples", name)
        environ = dict(os.environ, PYTHONPATH=os.path.join(HERE, ".."), TRAINYARD_CHECKPOINT_DIR=folder, **environ)
        done = subprocess.run(
            [sys.executable, path] + list(arguments), env=environ, stdout=subprocess.PIPE, timeout=120
        )
        return done.returncode, done.stdout.decode()

    def check_resumed_loss(self, name):
        """A run that is broken off and resumed ends with the same loss as one that is not, to the last bit."""
        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
            code, unbroken = self.run_example(name, whole, "--steps", "40")
            self.assertEqual(code, 0, unbroken)
            code, _ = self.run_example(name, parts, "--steps", "40", "--stop-after", "15")
            self.assertEqual(code, 85)
            code, resumed = self.run_example(name, parts, "--steps", "40", TRAINYARD_RESTORE_FROM=parts)
            self.assertEqual(code, 0)
            self.assertIn("resumed at step 15", resumed)
            final = [line for line in unbroken.splitlines() if line.startswith("final loss")]
            self.assertEqual(len(final), 1, unbroken)
            self.assertIn(final[0], resumed.splitlines())

    def test_plain_sgd_resumes_with_the_same_loss(self):
        self.check_resumed_loss("sgd.py")

    def test_pytorch_resumes_with_the_same_loss(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("PyTorch is not here")
        self.check_resumed_loss("torch_sgd.py")


if __name__ == "__main__":
    unittest.main()
