"""Boxes of tests/lan/lan.sh, each with a disk of its own, and the processes that run in them.

A box's disk is a folder of the test's scratch that no other box sees; the test looks into it from
outside. `Unit` is started again when it ends, as systemd would by configs/systemd.
"""
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
LAN = os.path.join(ROOT, "tests", "lan", "lan.sh")
LANYARD = os.path.realpath(os.environ.get("LANYARD", os.path.join(ROOT, "build", "lanyard")))
NO_RIGHTS, WAIT_S, RESTART_S = 77, 90 * int(os.environ.get("TEST_LIMIT_FACTOR", "1")), 0.3


class Failed(Exception):
    pass


def expect(truth, what):
    if not truth:
        raise Failed(what)


def wait_for(what, look, limit_s=WAIT_S):
    """Until look() is true; what it returned."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        got = look()
        if got:
            return got
        time.sleep(0.05)
    raise Failed(f"waited {limit_s} s for {what}")


class Process:
    def __init__(self, box, name, words, program=LANYARD):
        self.box, self.name, self.words, self.program = box, name, words, program
        self.log = os.path.join(box.disk, name + ".log")
        self.child = None
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen([LAN, "in", self.box.name, self.program] + self.words,
                                          stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                          cwd=self.box.disk)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def await_text(self, text, limit_s=WAIT_S):
        def look():
            return text in self.said()
        try:
            wait_for(text, look, limit_s)
        except Failed as error:
            raise Failed(f"{self.name}: {error}; it said:\n{self.said()[-3000:]}") from None

    def status(self, limit_s=WAIT_S):
        try:
            return self.child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} does not end:\n{self.said()[-3000:]}") from None

    def kill(self, number=signal.SIGKILL):
        if self.child.poll() is None:
            self.child.send_signal(number)
            self.child.wait(WAIT_S)

    def stop(self):
        self.kill()


class Unit(Process):
    """stays_down: the statuses after which it is not started again."""

    def __init__(self, box, name, words, stays_down=(2, 5, 6), **more):
        self.stays_down, self.ends, self.statuses = stays_down, threading.Event(), []
        super().__init__(box, name, words, **more)
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def keep(self):
        while not self.ends.is_set():
            status = self.child.wait()
            if self.ends.is_set():
                return
            self.statuses.append(status)
            if status in self.stays_down:
                return
            if not self.ends.wait(RESTART_S):
                self.start()

    def stop(self):
        self.ends.set()
        super().stop()
        self.thread.join(WAIT_S)


class Box:
    def __init__(self, name, scratch):
        self.name = name
        self.disk = os.path.join(scratch, name)
        os.makedirs(self.disk)
        self.address = subprocess.check_output([LAN, "address", name], text=True).strip()
        subprocess.check_call([LAN, "disk", name, self.disk])
        subprocess.check_call([LAN, "show", name, LANYARD])

    def run(self, *words, status=0):
        """A command in the box; what it said."""
        done = subprocess.run([LAN, "in", self.name] + list(words), cwd=self.disk, text=True,
                              timeout=WAIT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False)
        expect(done.returncode == status, f"{' '.join(words)}: status {done.returncode}, expected "
               f"{status}: {done.stdout}")
        return done.stdout

    def path(self, name):
        return os.path.join(self.disk, name)

    def write(self, name, what):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(what if isinstance(what, str) else json.dumps(what))
        return self.path(name)

    def records(self, run, *kinds):
        """Of a run's metrics.jsonl."""
        path = self.path(os.path.join(run, "metrics.jsonl"))
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        return [one for one in lines if one["record"] in kinds]


class Site:
    """Boxes and what was started in them; it ends with the case."""

    def __init__(self, names):
        self.scratch = tempfile.TemporaryDirectory(prefix="boxes-")
        self.boxes = {name: Box(name, self.scratch.name) for name in names}
        self.processes = []

    def __getitem__(self, name):
        return self.boxes[name]

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        for one in self.processes:
            one.stop()
        if failure[0] and os.environ.get("BOXES_SHOW"):
            for one in self.processes:
                print(f"---- {one.box.name} {one.name}\n{one.said()[-6000:]}", file=sys.stderr)
        self.scratch.cleanup()

    def start(self, box, name, *words, unit=True, **more):
        kind = Unit if unit else Process
        one = kind(self.boxes[box], name, list(words), **more)
        self.processes.append(one)
        return one


def main(cases, boxes, file):
    """Runs cases (functions of no arguments) in a LAN of these boxes; prints as test programs do."""
    wanted = [one for one in cases if len(sys.argv) < 2 or sys.argv[1] in one.__name__]
    if os.environ.get("LANYARD_BOXES") != "inside":
        if not wanted:
            print("0 passed, 0 failed, 0 skipped")
            return 0
        rates = [f"{box}=1000" for box in boxes]
        done = subprocess.run([LAN, "with"] + rates + ["--", sys.executable, "-B", file] + sys.argv[1:],
                              env=dict(os.environ, LANYARD_BOXES="inside"), check=False,
                              stdout=subprocess.PIPE, text=True)
        if done.returncode == NO_RIGHTS:
            for one in wanted:
                print(f"skip {one.__name__}\n    {done.stdout.strip().removeprefix('skip: ')}")
            print(f"0 passed, 0 failed, {len(wanted)} skipped")
            return 0
        print(done.stdout, end="")
        return done.returncode
    failed = 0
    for case in wanted:
        begin = time.monotonic()
        try:
            case()
            print(f"pass {case.__name__}")
        except (Failed, OSError, ValueError, http.client.HTTPException,
                subprocess.SubprocessError) as error:
            failed += 1
            print(f"FAIL {case.__name__}")
            print("    " + f"{type(error).__name__}: {error}".replace("\n", "\n    "))
        if os.environ.get("BOXES_SHOW"):
            print(f"{case.__name__}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
        sys.stdout.flush()
    print(f"{len(wanted) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0
