"""A client of the daemon: submits jobs and asks about them.

    from trainyard import Client
    yard = Client()                                    # the daemon of this machine, or TRAINYARD_SERVER
    (job,) = yard.submit({"argv": ["python3", "train.py"], "gpus": 2})
    print(yard.wait(job)["state"], yard.logs(job))

It speaks HTTP over the daemon's Unix socket, or over TCP with a token. Standard library only.
"""

import http.client
import ipaddress
import json
import os
import socket
import ssl
import time
import urllib.parse
import uuid

#: The name of the daemon's socket in each place where it is looked for.
SOCKET = "api.sock"
#: States in which a job has ended.
OVER = frozenset(("finished", "cancelled", "failed", "time-limit", "orphaned", "rejected", "pruned"))
#: Statuses after which the same request may be sent again.
AGAIN = (429, 503)


class Problem(Exception):
    """What the daemon refused, or why it could not be reached."""

    def __init__(self, code, detail, field=None, status=None):
        super().__init__(detail)
        #: What sort it is, such as ``bad-input``, ``denied``, ``not-found`` or ``unreachable``.
        self.code = code
        #: What is wrong and what to do.
        self.detail = detail
        #: The field at fault, where there is one.
        self.field = field
        #: The HTTP status; None if no answer came.
        self.status = status


class Client:
    """Asks one daemon. Safe to share between threads: each request has a connection of its own.

    ``server`` is ``unix:PATH``, ``https://HOST:PORT`` or ``http://127.0.0.1:PORT``; by default ``TRAINYARD_SERVER``,
    else the local socket that answers. ``token`` is for TCP; by default ``TRAINYARD_TOKEN``. ``ca`` is a file with the
    certificate of a daemon that signed its own. A request that got no answer is sent up to ``tries`` times; that does
    no harm, because every submission has a key.
    """

    def __init__(self, server=None, token=None, ca=None, timeout=90.0, tries=4):
        server = server or os.environ.get("TRAINYARD_SERVER")
        self.server = _address(server) if server else _search()
        self.token = token or os.environ.get("TRAINYARD_TOKEN")
        self.timeout = timeout
        self.tries = max(1, tries)
        self._ca = ca

    # Jobs.

    def submit(self, *jobs, key=None):
        """Takes jobs on, all or none; returns their ids, which are on disk by then.

        A job is a dict with the fields of a submission (``argv``, ``gpus``, ``env``, ...); its working directory is
        the present one unless ``cwd`` says otherwise. The same ``key`` gives the same answer, however often it is sent.
        """
        rows = [dict(job) for job in jobs]
        for row in rows:
            row.setdefault("cwd", os.getcwd())
        return self.request("POST", "/v1/jobs", {"jobs": rows, "key": key or "py-" + uuid.uuid4().hex})["jobs"]

    def plan(self, *jobs):
        """What would become of a submission; nothing is taken on."""
        return self.request("POST", "/v1/plan", {"jobs": [dict(job) for job in jobs], "key": None})

    def jobs(self, **filters):
        """Rows of jobs: ``user``, ``tenant``, ``state``, ``all``, ``limit``, ``before``."""
        return self.request("GET", "/v1/jobs", query=filters)["jobs"]

    def job(self, job):
        """All about one job."""
        return self.request("GET", "/v1/jobs/%d" % job)

    def why(self, job):
        """Why it waits."""
        return self.request("GET", "/v1/jobs/%d/why" % job)

    def eta(self, job, confidence=None):
        """When it is expected to start and to end."""
        return self.request("GET", "/v1/jobs/%d/eta" % job, query={"confidence": confidence})

    def logs(self, job, rank=0, attempt=None, start=0):
        """The text of its log from byte ``start`` (negative: from the end) to what is there now."""
        parts, place = [], start
        while True:
            query = {"rank": rank, "attempt": attempt, "from": place, "max": 1 << 20}
            part = self.request("GET", "/v1/jobs/%d/logs" % job, query=query)
            parts.append(part["text"])
            if part["next"] == place or not part["text"]:
                return "".join(parts)
            place = part["next"]

    def cancel(self, job, reason=None):
        """Ends it."""
        self._act(job, {"action": "cancel", "reason": reason})

    def hold(self, job):
        """Sets it aside; a running one saves and stops."""
        self._act(job, {"action": "hold"})

    def release(self, job):
        """Lets it go on."""
        self._act(job, {"action": "release"})

    def requeue(self, job):
        """Stops it and puts it back into the queue."""
        self._act(job, {"action": "requeue"})

    def wait(self, job, timeout=None, every=1.0):
        """All about a job once it has ended; raises ``TimeoutError`` after ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            detail = self.job(job)
            if detail["state"] in OVER:
                return detail
            if end is not None and time.monotonic() >= end:
                raise TimeoutError("job %d is %s after %g s" % (job, detail["state"], timeout))
            time.sleep(every)

    # The cluster.

    def nodes(self):
        """The nodes."""
        return self.request("GET", "/v1/nodes")["nodes"]

    def status(self):
        """The daemon as a whole, and who the caller is to it."""
        return self.request("GET", "/v1/status")

    def events(self, after=None, max=None, wait=None):
        """Events after a number, waiting up to ``wait`` seconds for one."""
        return self.request("GET", "/v1/events", query={"after": after, "max": max, "wait": wait})["events"]

    # Inside.

    def request(self, method, path, body=None, query=None):
        """One request as it is; the answer as JSON. For routes that have no method here."""
        asked = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        target = path + ("?" + urllib.parse.urlencode(asked) if asked else "")
        data = None if body is None else json.dumps(body).encode()
        # An action on a job has no key, and may have been done though no answer came.
        may_repeat = method == "GET" or (isinstance(body, dict) and body.get("key"))
        for tries_left in range(self.tries - 1, -1, -1):
            try:
                return self._once(method, target, data)
            except Problem as problem:
                refused = problem.status in AGAIN
                lost = problem.status is None and may_repeat
                if not tries_left or not (refused or lost):
                    raise
            time.sleep(0.2 * 2 ** (self.tries - 1 - tries_left))

    def _act(self, job, act):
        self.request("POST", "/v1/jobs/%d/act" % job, act)

    def _once(self, method, target, data):
        headers = {"Accept": "application/json", "Connection": "close"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        if self.token and self.server[0] != "unix":
            headers["Authorization"] = "Bearer " + self.token
        connection = self._connection()
        try:
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Problem("unreachable", "%s does not answer: %s" % (_shown(self.server), error)) from error
        finally:
            connection.close()
        return _read(status, text)

    def _connection(self):
        kind, place = self.server
        if kind == "unix":
            return _UnixConnection(place, self.timeout)
        if kind == "http":
            return http.client.HTTPConnection(place, timeout=self.timeout)
        context = ssl.create_default_context(cafile=self._ca)
        return http.client.HTTPSConnection(place, timeout=self.timeout, context=context)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _read(status, text):
    try:
        answer = json.loads(text) if text else None
    except ValueError:
        answer = None
    if 200 <= status < 300:
        return answer
    problem = answer if isinstance(answer, dict) else {}
    detail = problem.get("detail") or "the answer has status %d" % status
    raise Problem(problem.get("code", "unreachable"), detail, problem.get("field"), status)


def _address(text):
    """The kind of a server and where it is. Plain HTTP is for this machine only: a token must not travel in the open."""
    text = text.strip()
    if text.startswith("/"):
        return ("unix", text)
    if text.startswith("unix:"):
        path = text[len("unix:") :]
        path = path[2:] if path.startswith("//") else path
        if path:
            return ("unix", path)
    scheme, _, rest = text.partition("://")
    rest = rest.rstrip("/")
    if rest and not any(mark in rest for mark in "/@?# "):
        if scheme == "https" or (scheme == "http" and _is_loopback(rest)):
            return (scheme, rest)
    raise ValueError("%r: expected unix:/path/to/socket, https://host:port or http://127.0.0.1:port" % text)


def _is_loopback(authority):
    host = authority[1:].partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _search():
    """The local socket that answers, the nearest first."""
    folders = [os.path.join(os.environ["XDG_RUNTIME_DIR"], "trainyard")] if os.environ.get("XDG_RUNTIME_DIR") else []
    folders.append("/run/trainyard")
    if os.environ.get("HOME"):
        folders.append(os.path.join(os.environ["HOME"], ".trainyard/run"))
    places = [os.path.join(folder, SOCKET) for folder in folders]
    for place in places:
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            probe.connect(place)
            return ("unix", place)
        except OSError:
            pass
        finally:
            probe.close()
    raise Problem(
        "unreachable",
        "no daemon answers: looked at %s; start one with `trainyard serve`, or set TRAINYARD_SERVER" % ", ".join(places),
    )


def _shown(server):
    return "unix:" + server[1] if server[0] == "unix" else "%s://%s" % server


def _text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)
