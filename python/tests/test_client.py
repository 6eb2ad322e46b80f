import http.server
import json
import os
import socketserver
import tempfile
import threading
import unittest

from trainyard import Client, Problem
from trainyard.client import _address


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.heard.append((self.command, self.path, body, self.headers.get("Authorization")))
        status, answer = self.server.say(self.command, self.path, body)
        if status is None:
            self.close_connection = True
            return
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer

    def address_string(self):
        return "a client"

    def log_message(self, *_):
        pass


class UnixServer(socketserver.UnixStreamServer):
    pass


class WithADaemon(unittest.TestCase):
    """What is sent and how answers are read; the real daemon is asked in the tests of the program."""

    def serve(self, say, unix=True):
        if unix:
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            place = os.path.join(folder.name, "api.sock")
            server, address = UnixServer(place, Handler), "unix:" + place
        else:
            server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
            address = "http://127.0.0.1:%d" % server.server_port
        server.heard, server.say = [], say
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server, address

    def test_a_submission_has_a_key_and_the_present_directory(self):
        server, address = self.serve(lambda *_: (200, {"jobs": [7], "repeated": False}))
        self.assertEqual(Client(address).submit({"argv": ["true"]}), [7])
        method, path, body, _ = server.heard[0]
        self.assertEqual((method, path), ("POST", "/v1/jobs"))
        self.assertEqual(body["jobs"], [{"argv": ["true"], "cwd": os.getcwd()}])
        self.assertTrue(body["key"].startswith("py-"))

    def test_a_submission_without_an_answer_is_sent_again_with_the_same_key(self):
        silent = [None, 503]

        def say(*_):
            return (silent.pop(0), {}) if silent else (200, {"jobs": [7]})

        server, address = self.serve(say)
        self.assertEqual(Client(address).submit({"argv": ["true"]}), [7])
        keys = {body["key"] for _, _, body, _ in server.heard}
        self.assertEqual((len(server.heard), len(keys)), (3, 1))

    def test_an_action_without_an_answer_is_not_done_twice(self):
        server, address = self.serve(lambda *_: (None, None))
        with self.assertRaises(Problem) as raised:
            Client(address).requeue(3)
        self.assertEqual(raised.exception.code, "unreachable")
        self.assertEqual(len(server.heard), 1)

    def test_a_token_goes_over_tcp_and_not_over_the_socket(self):
        for unix, header in ((False, "Bearer secret"), (True, None)):
            server, address = self.serve(lambda *_: (200, {"jobs": []}), unix)
            Client(address, token="secret").jobs(state="running", all=True, user=None)
            self.assertEqual(server.heard, [("GET", "/v1/jobs?state=running&all=true", None, header)])

    def test_a_refusal_is_raised_with_its_field(self):
        answer = {"code": "bad-input", "detail": "it is 0: expected more", "field": "gpus"}
        server, address = self.serve(lambda *_: (422, answer))
        with self.assertRaises(Problem) as raised:
            Client(address).submit({"argv": ["true"], "gpus": 0})
        problem = raised.exception
        self.assertEqual((problem.code, problem.field, problem.status), ("bad-input", "gpus", 422))
        self.assertEqual(str(problem), "it is 0: expected more")
        self.assertEqual(len(server.heard), 1, "asking again would not help")

    def test_a_log_is_read_to_its_end(self):
        parts = {"0": ("ab", 2), "2": ("cd", 4), "4": ("", 4)}

        def say(_, path, __):
            text, place = parts[path.partition("from=")[2].partition("&")[0]]
            return 200, {"text": text, "next": place}

        _, address = self.serve(say)
        self.assertEqual(Client(address).logs(1), "abcd")

    def test_waiting_ends_with_the_job_or_with_the_time(self):
        states = ["running", "saving", "time-limit"]
        _, address = self.serve(lambda *_: (200, {"state": states.pop(0) if len(states) > 1 else states[0]}))
        self.assertEqual(Client(address).wait(1, every=0.01)["state"], "time-limit")
        states[:] = ["waiting"]
        with self.assertRaises(TimeoutError):
            Client(address).wait(1, timeout=0.05, every=0.01)


class Addresses(unittest.TestCase):
    def test_plain_http_stays_on_this_machine(self):
        self.assertEqual(_address("unix:/run/a.sock"), ("unix", "/run/a.sock"))
        self.assertEqual(_address("/run/a.sock"), _address("unix:///run/a.sock"))
        self.assertEqual(_address("https://host:8443/"), ("https", "host:8443"))
        self.assertEqual(_address("http://[::1]:80"), ("http", "[::1]:80"))
        for text in ("host:80", "http://host:80", "ftp://host", "https://", "https://a@b", "unix:"):
            with self.assertRaises(ValueError, msg=text):
                _address(text)

    def test_where_nothing_answers_it_is_said_where_it_looked(self):
        kept = {name: os.environ.pop(name, None) for name in ("TRAINYARD_SERVER", "XDG_RUNTIME_DIR", "HOME")}
        try:
            os.environ["HOME"] = "/nonexistent"
            with self.assertRaises(Problem) as raised:
                Client()
            self.assertIn("/nonexistent/.trainyard/run/api.sock", str(raised.exception))
        finally:
            for name, value in kept.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


if __name__ == "__main__":
    unittest.main()
