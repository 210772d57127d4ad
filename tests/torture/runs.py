"""Runs that faults strike: under `lanyard up`, or every process in a box of its own.

A run is polled by whoever waits for it; its metrics and, in boxes, the starting again of processes
that failed (as systemd would) happen there. Attempts are told apart by their coordinator.
"""
import glob
import json
import os
import re
import signal
import subprocess
import time

ROUND_LIMIT_S = 300
GRACE_S = 4.0  # for processes to end by themselves when the run is complete
RESTART_S = 0.3  # between the end of a process in a box and its next start
LAN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lan", "lan.sh")


def choices_of(program, key):
    """The names that a key of the configuration takes, as the program documents them."""
    document = subprocess.run([program, "check", "--document"], check=True, capture_output=True, text=True).stdout
    row, = re.findall(rf"^\| `{re.escape(key)}` \|.*$", document, re.M)
    return re.findall(r'`"([^"`]+)"`:', row)


class Failed(Exception):
    """What is wrong with a round."""


def stat_of(pid):
    """(state, parent), or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
        return words[0], int(words[1])
    except (OSError, ValueError, IndexError):
        return None


def words_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace").split("\0")
    except OSError:
        return []


def processes():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def member_of(pid):
    """(pid, role, rank) of a member of a run, else None."""
    words = words_of(pid)
    if len(words) < 3 or words[1] not in ("worker", "ps", "coordinator"):
        return None
    return pid, words[1], int(words[words.index("--rank") + 1]) if "--rank" in words else 0


class Metrics:
    """The records of metrics.jsonl as they come; `history` is what survives of the iterations."""

    def __init__(self, path):
        self.path, self.at, self.rest = path, 0, b""
        self.iterations, self.checkpoints = 0, []
        self.history = {}

    def poll(self):
        try:
            with open(self.path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self.at:  # cut off, or begun anew
                    self.at, self.rest, self.history = 0, b"", {}
                file.seek(self.at)
                block = file.read()
        except OSError:
            return
        self.at += len(block)
        *lines, self.rest = (self.rest + block).split(b"\n")
        for line in lines:
            try:
                self.take(json.loads(line))
            except ValueError:
                continue  # cut off when its writer was killed

    def take(self, record):
        kind = record["record"]
        if kind == "iteration":
            self.iterations += 1
            self.forget(record["iteration"] - 1)
            self.history[record["iteration"]] = record["quality"]["first_sample"], record["samples"]
        elif kind == "resumed":
            self.forget(record["iteration"])
        elif kind == "checkpoint":
            self.checkpoints.append(record)

    def forget(self, last):
        while self.history and max(self.history) > last:
            del self.history[max(self.history)]

    def check_once(self, samples):
        """Every sample once, in iterations without a gap."""
        done = 0
        for number, iteration in enumerate(sorted(self.history), 1):
            first, count = self.history[iteration]
            if iteration != number or first != done:
                raise Failed(f"iteration {iteration} trains from sample {first}; before it were "
                             f"{number - 1} iterations and {done} samples")
            done += count
        if done != samples:
            raise Failed(f"{done} samples are trained in what survives, expected {samples}")


class Run:
    """What both kinds share. `pull(role)` and `plug(role)` exist where there are links."""

    def __init__(self, folder, name):
        self.folder, self.out = folder, os.path.join(folder, name)
        self.metrics = Metrics(os.path.join(self.out, "metrics.jsonl"))
        self.end = time.monotonic() + ROUND_LIMIT_S
        self.damaged = set()  # checkpoints, by name
        self.environment = dict(os.environ, TMPDIR=os.path.join(folder, "tmp"))
        os.makedirs(self.environment["TMPDIR"], exist_ok=True)

    def victims(self, role):
        return [pid for pid, kind, _ in self.members() if kind == role]

    def coordinator(self):
        """Of the present attempt; None between two."""
        return next(iter(self.victims("coordinator")), None)

    def wait(self, what, done):
        """False: the run ended before it was done."""
        while not done():
            self.step()
            if self.ended():
                self.metrics.poll()
                return done()
            if time.monotonic() > self.end:
                said = self.said()
                self.kill()
                raise Failed(f"{what} did not come within {ROUND_LIMIT_S} s:\n{said}")
            time.sleep(0.002)
        return True

    def check_logs(self):
        """What a sanitizer says of a process that is started again ends nothing else."""
        for path in glob.glob(glob.escape(self.out) + "*.log"):
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
            if "Sanitizer: " in text or ": runtime error: " in text:
                raise Failed(f"{os.path.basename(path)}:\n{text[-6000:]}")

    def pause(self, seconds):
        until = time.monotonic() + seconds
        self.wait("a moment", lambda: time.monotonic() >= until)

    def is_writing(self):
        """A checkpoint is being written: its folder is there, its manifest is not."""
        folder = os.path.join(self.out, "checkpoints")
        return any(name.startswith("ckpt-") and
                   not os.path.exists(os.path.join(folder, name, "manifest.json"))
                   for name in (os.listdir(folder) if os.path.isdir(folder) else []))


class UpRun(Run):
    """One `lanyard up`."""

    def __init__(self, program, folder, name, config, sets):
        super().__init__(folder, name)
        command = [program, "up", config, "--out", self.out]
        for key, value in sorted(sets.items()):
            command += ["--set", f"{key}={value}"]
        with open(self.out + ".log", "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env=self.environment)

    def members(self):
        parents = ((pid, stat_of(pid)) for pid in processes())
        found = (member_of(pid) for pid, stat in parents if stat and stat[1] == self.process.pid)
        return [one for one in found if one]

    def step(self):
        self.metrics.poll()

    def ended(self):
        return self.process.poll() is not None

    def said(self):
        with open(self.out + ".log", encoding="utf-8", errors="replace") as file:
            return file.read()[-6000:]

    def finish(self):
        self.wait("the end", self.ended)
        self.check_logs()
        if self.process.returncode != 0:
            raise Failed(f"exit status {self.process.returncode}:\n{self.said()}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Box:
    """A process that is started again until it ends with status 0."""

    def __init__(self, box, command, log, environment):
        self.box, self.command, self.environment = box, command, environment
        self.log = log
        self.done, self.process, self.again = False, None, 0.0

    def step(self):
        if self.done or time.monotonic() < self.again:
            return
        if self.process is None:
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen([LAN, "in", self.box] + self.command, stdout=log,
                                                stderr=log, stdin=subprocess.DEVNULL,
                                                env=self.environment)
        elif self.process.poll() is not None:
            self.done = self.process.returncode == 0
            self.process, self.again = None, time.monotonic() + RESTART_S


class BoxesRun(Run):
    """Coordinator in box hub, shards in box ps, workers in w0, w1, ...; inside of `lan.sh with`."""

    def __init__(self, program, folder, name, config, sets, shards, workers):
        super().__init__(folder, name)
        hub, ps = (subprocess.check_output([LAN, "address", box], text=True).strip()
                   for box in ("hub", "ps"))
        places = [f"{ps}:{7001 + s}" for s in range(shards)]
        sets = dict(sets, **{"network.coordinator": f"{hub}:7000", "security.insecure": "true"})
        if "boxes" in sets:  # their shards stand together all the same
            boxes = json.loads(sets["boxes"])
            for rank, box in enumerate(boxes[:shards]):
                box.update(host=ps, port=7001 + rank)
            sets["boxes"] = json.dumps(boxes)
        else:
            sets["network.ps"] = json.dumps(places)
        self.sets = [word for key, value in sorted(sets.items())
                     for word in ("--set", f"{key}={value}")]
        self.program, self.config, self.boxes = program, config, []
        self.may_shrink, self.complete = sets["on_worker_loss"] == "shrink", None
        self.add("ps", [["ps", "--rank", str(s)] for s in range(shards)])
        for rank in range(workers):
            box = f"w{rank}"
            own = subprocess.check_output([LAN, "address", box], text=True).strip()
            # workers listen where rows go from one to the other
            self.add(box, [["worker", "--bind", own, "--rank", str(rank)]])
        self.add("hub", [["coordinator", "--restart", "--out", self.out]])

    def add(self, box, commands):
        for role, *rest in commands:
            log = f"{self.out}.{role}{rest[-1] if role != 'coordinator' else ''}.log"
            command = [self.program, role, self.config] + rest + self.sets
            self.boxes.append(Box(box, command, log, self.environment))

    def members(self):
        # `lan.sh in` becomes the process that it starts.
        found = (member_of(box.process.pid) for box in self.boxes if box.process)
        return [one for one in found if one]

    def step(self):
        self.metrics.poll()
        for box in self.boxes:
            box.step()

    def ended(self):
        if self.may_shrink and self.boxes[-1].done:  # the coordinator
            self.dismiss()
        return all(box.done for box in self.boxes)

    def dismiss(self):
        """A worker that was away when the run was complete never hears of it: somebody has to."""
        self.complete = self.complete or time.monotonic()
        if time.monotonic() > self.complete + GRACE_S:
            self.kill()

    def said(self):
        parts = []
        for box in self.boxes:
            with open(box.log, encoding="utf-8", errors="replace") as file:
                parts.append(f"{os.path.basename(box.log)}:\n{file.read()[-2500:]}")
        return "\n".join(parts)

    def finish(self):
        self.wait("the end", self.ended)
        self.check_logs()

    def kill(self):
        for box in self.boxes:
            box.done = True
            if box.process and box.process.poll() is None:
                box.process.kill()
                box.process.wait()

    def box_of(self, pid):
        return next(box.box for box in self.boxes if box.process and box.process.pid == pid)


def change_link(verb, box):
    subprocess.run([LAN, verb, box], check=True)


class Late:
    """A process that stands still; by a descriptor, so that no other one can be meant."""

    def __init__(self, pid):
        self.fd = os.pidfd_open(pid)
        signal.pidfd_send_signal(self.fd, signal.SIGSTOP)

    def go_on(self):
        try:
            signal.pidfd_send_signal(self.fd, signal.SIGCONT)
        except ProcessLookupError:
            pass  # it was made to go
        os.close(self.fd)
