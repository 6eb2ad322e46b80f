"""What a daemon measured of its jobs, as a table: python3 scripts/gpu_evidence.py SOCKET ALONE.txt TRAINYARD"""

import http.client
import json
import re
import socket
import subprocess
import sys


def ask(path, route):
    """One answer of the daemon."""
    line = http.client.HTTPConnection("127.0.0.1")
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect(path)
    line.request("GET", route)
    return json.loads(line.getresponse().read())


def seconds(value):
    """A figure of a table."""
    return "-" if value is None else f"{value:.2f}"


def main():
    path, alone, yard = sys.argv[1:]
    unbroken = re.search(r"final loss (\S+)", open(alone).read()).group(1)
    print("| job | attempts | preemptions | steps/s | start s | save s | restore s | final loss |")
    print("|---|---|---|---|---|---|---|---|")
    for row in sorted(ask(path, "/v1/jobs?all=true")["jobs"], key=lambda row: row["id"]):
        job = ask(path, f"/v1/jobs/{row['id']}")
        log = subprocess.run([yard, "logs", str(row["id"])], capture_output=True, text=True).stdout
        loss = re.search(r"final loss (\S+)", log)
        loss = loss.group(1) if loss else "-"
        if row["name"] == "long":
            loss += " (as unbroken)" if loss == unbroken else f" (unbroken: {unbroken})"
        figures = [seconds(job["measured"][name]) for name in ("rate", "start", "save", "restore")]
        cells = [row["name"], row["attempt"], row["preemptions"], *figures, loss]
        print("|", " | ".join(str(cell) for cell in cells), "|")


if __name__ == "__main__":
    main()
