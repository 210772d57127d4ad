"""Process 1 of a box: runs commands that come as lines of JSON, and the units (units.py).

Standard input has {"run": SCRIPT}, {"start": SCRIPT} or {"write": PATH, "text": TEXT}, standard
output an answer to each, in order: {"status": N, "text": what it said}. A script that was only
started gets no further answer.
In the box systemctl, journalctl and, where the machine lacks them, sudo and nft are small stand-ins;
apt-get looks whether the packages are there.
"""
import json
import os
import socket
import subprocess
import sys
import threading

from units import Manager, UnitError

SOCKET = "/run/manager"
STAND_INS = {
    "systemctl": f"""#!/usr/bin/python3
import json, socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect("{SOCKET}")
one.sendall((json.dumps(sys.argv[1:]) + "\\n").encode())
status, text = json.loads(one.makefile().readline())
print(text, end="", file=sys.stderr if status else sys.stdout)
sys.exit(status)
""",
    "journalctl": """#!/bin/bash
for word; do case $word in -*) ;; *) cat "/run/log-${word%.service}.service" ;; esac; done
""",
    "sudo": """#!/bin/bash
[ "$1" = -u ] || exec "$@"
exec setpriv --reuid="$2" --regid="$2" --init-groups -- "${@:3}"
""",
    "apt-get": """#!/bin/bash
[ "$1" = install ] || { echo "apt-get $1: not here" >&2; exit 1; }
for word in "${@:2}"; do case $word in -*) ;; *)
    dpkg-query -W -f '${Status}\\n' "$word" 2>/dev/null | grep -q 'ok installed' ||
        { echo "apt-get: $word is not installed on this machine" >&2; exit 1; } ;;
esac; done
""",
}


def furnish():
    for name, text in STAND_INS.items():
        path = os.path.join("/usr/local/bin", name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)


def answer(manager, one):
    with one, one.makefile("rw") as file:
        try:
            said = manager.command(*json.loads(file.readline()))
        except UnitError as error:
            said = 1, f"{error}\n"
        file.write(json.dumps(said) + "\n")


def serve(manager):
    if os.path.exists(SOCKET):  # of the process 1 before: the box was switched off
        os.unlink(SOCKET)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen()
    while True:
        one, _ = listener.accept()
        threading.Thread(target=answer, args=[manager, one], daemon=True).start()


def main():
    furnish()
    threading.Thread(target=serve, args=[Manager()], daemon=True).start()
    environment = dict(os.environ, PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                       HOME="/root", LC_ALL="C.UTF-8")
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            with open("/run/log-started", "ab") as log:
                subprocess.Popen(["bash", "-eu", "-c", request["start"]], env=environment,
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            said = {"status": 0, "text": ""}
        elif "write" in request:
            with open(request["write"], "w", encoding="utf-8") as file:
                file.write(request["text"])
            said = {"status": 0, "text": ""}
        else:
            done = subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", request["run"]],
                                  env=environment, stdin=subprocess.DEVNULL, text=True, errors="replace",
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            said = {"status": done.returncode, "text": done.stdout}
        print(json.dumps(said), flush=True)


main()
