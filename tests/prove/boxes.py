"""boxes - the boxes of a proof: memory that each may use, a disk of its own, processes that are started again.

Inside of `tests/lan/lan.sh with`. What a box runs is in control groups of the box (version 1 or 2): its memory has a
bound, and of the processors, which all boxes share, every box has an equal part while it has work. A process that
outlives everything else removes the groups, whatever becomes of the rest.
"""
import ctypes
import os
import shutil
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.realpath(__file__))
LAN = os.path.join(HERE, "..", "lan", "lan.sh")
DISK = "/srv/lanyard"  # of every box, as the box sees it
RESTART_S, ENDS_S = 0.3, 15
PROCESSES = 3  # of a box, so many as would want a processor: all boxes together weigh as much beside the shops
PR_SET_THP_DISABLE = 41


class Limits:
    """Control groups of each box, for memory and, with version 1 elsewhere, for processors (shares; None: there are
    none). reason: why memory has no bound."""

    def __init__(self, folder, version, reason=None, shares=None):
        self.folder, self.version, self.reason, self.shares = folder, version, reason, shares

    def group(self, box):
        return os.path.join(self.folder, box)

    def limit(self, box, size):
        if not self.reason:
            name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
            write(os.path.join(self.group(box), name), size)

    def used(self, box):
        """Bytes of a box's memory that nothing on disk stands for, now."""
        if self.reason:
            return 0
        key = "rss" if self.version == 1 else "anon"
        with open(os.path.join(self.group(box), "memory.stat"), encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.split()[0] == key)

    def killed(self, box):
        """Processes of a box that were ended because it had no memory left."""
        if self.reason:
            return 0
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        with open(os.path.join(self.group(box), name), encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.split()[0] == "oom_kill")

    def enter(self, box):
        """Run by a process that is about to become one of the box. Huge pages would round up what little it has."""
        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
        if not self.reason:
            write(os.path.join(self.group(box), "cgroup.procs"), 0)
        if self.shares:
            write(os.path.join(self.shares, box, "cgroup.procs"), 0)


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


def own_group(text, controller="memory"):
    """The group of this process (version 1), from /proc/self/cgroup; None: version 2."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return None


def make_shares(own, boxes, name):
    """Groups of version 1 whose parts of the processors are equal; None: they cannot be made."""
    folder = os.path.join("/sys/fs/cgroup/cpu" + own, name)
    try:
        for box in boxes:
            os.makedirs(os.path.join(folder, box))
        write(os.path.join(folder, "cpu.shares"), PROCESSES * len(boxes) * 1024)
    except OSError:
        return None
    return folder


def make_limits(boxes):
    """Empty groups, for this process and its children."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        text = file.read()
    own, own_shares = own_group(text), own_group(text, "cpu")
    root = "/sys/fs/cgroup" if own is None else "/sys/fs/cgroup/memory" + own
    version = 2 if own is None else 1
    name = "lanyard-prove-%d" % os.getpid()
    folder = os.path.join(root, name)
    limits = Limits(folder, version, shares=make_shares(own_shares, boxes, name) if own_shares else None)
    try:
        os.mkdir(folder)
        if version == 2:
            try:
                write(os.path.join(folder, "cgroup.subtree_control"), "+memory +cpu")  # whose weights are equal
                write(os.path.join(folder, "cpu.weight"), PROCESSES * len(boxes) * 100)
            except OSError:
                write(os.path.join(folder, "cgroup.subtree_control"), "+memory")
        for box in boxes:
            os.mkdir(limits.group(box))
            limits.limit(box, 1 << 40)
    except OSError as error:
        limits.reason = "no memory control group: %s" % error
    return limits


def sweep_at_end(limits, folder):
    """Removes groups and disks when this process and all of its children have ended, however they did."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    if os.fork():
        os.close(reading)
        return
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.close(writing)
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    os.read(reading, 1)
    shutil.rmtree(folder, ignore_errors=True)
    folders = [limits.folder] + ([limits.shares] if limits.shares else [])
    for _ in range(100):
        for path in [path for one in folders for path, _, _ in os.walk(one, topdown=False)]:
            try:
                os.rmdir(path)
            except OSError:
                pass  # its last process is still ending
        if not any(map(os.path.exists, folders)):
            break
        time.sleep(0.1)
    os._exit(0)


def lan(*words):
    return subprocess.check_output([LAN, *words], text=True)


def address(box):
    return lan("address", box).strip()


def counted(boxes):
    """Bytes that the boxes have sent over their links so far."""
    return {box: int(up) for box, up, _ in map(str.split, lan("bytes").splitlines()) if box in boxes}


class Process:
    """A process in a box, which is started again while it fails, as its unit would. again: how long to wait then."""

    def __init__(self, limits, box, command, log, again=True, environment=None):
        self.limits, self.box, self.command, self.log = limits, box, command, log
        self.again, self.environment = again, dict(os.environ, **(environment or {}))
        self.process, self.status, self.starts, self.due = None, None, 0, 0.0
        self.step()

    def step(self):
        if self.process is None and self.status is None and time.monotonic() >= self.due:
            self.starts += 1
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen(
                    [LAN, "in", self.box] + self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                    env=self.environment, preexec_fn=lambda: self.limits.enter(self.box))
        elif self.process and self.process.poll() is not None:
            status, self.process, self.due = self.process.returncode, None, time.monotonic() + RESTART_S
            if status in (0, 2, 5, 6) or not self.again:
                self.status = status

    def end(self, wait_s=ENDS_S):
        self.again = False
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(wait_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.status, self.process = self.process.returncode, None

    def said(self, size=2000):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-size:]
