"""Five boxes as docs/DEPLOY.md has them, inside of `tests/lan/lan.sh with`: each runs box.py.

The commands come from the document: a block there follows a comment that says where it belongs.
"""
import itertools
import json
import os
import re
import select
import subprocess
import time
import traceback

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LAN = os.path.join(ROOT, "tests", "lan", "lan.sh")
DOCUMENT = os.path.join(ROOT, "docs", "DEPLOY.md")
BOXES = ["hub", "w0", "w1", "w2", "w3"]
BLOCK = re.compile(r"<!-- (.*?) -->\n```\n(.*?)```\n", re.DOTALL)
CLOCKS = itertools.count(100000, 54321)  # seconds
WAIT_S = 60 * int(os.environ.get("TEST_LIMIT_FACTOR", "1"))
ANSWER_S = 3 * WAIT_S  # one command in a box: a unit that does not end by itself is killed after 90 s


class Failed(Exception):
    """What was expected, and what was there instead."""


def blocks():
    """{comment: commands} of the document; every block of it must say where it belongs."""
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    found = BLOCK.findall(text)
    if len(found) != text.count("```") // 2:
        raise Failed("docs/DEPLOY.md: a block of commands does not say where it belongs")
    joined = {}
    for where, commands in found:
        joined.setdefault(where, []).append(commands)
    return joined


class Box:
    """A box by the process 1 in it."""

    def __init__(self, name):
        self.name = name
        self.boot()

    def boot(self):
        """Its clock (CLOCK_MONOTONIC) starts at a time that no other box has."""
        self.process = subprocess.Popen(
            [LAN, "in", self.name, "unshare", "--time", "--monotonic", str(next(CLOCKS)), "--pid", "--fork",
             "--kill-child", "--mount-proc", "python3", "-B", os.path.join(HERE, "box.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], ANSWER_S)[0]:
            raise Failed(f"{self.name}: no end within {ANSWER_S} s of {request}")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"{self.name}: its process 1 has ended")
        return json.loads(line)

    def run(self, script, want=0):
        """Runs it to its end; what it said."""
        answer = self.ask({"run": f"cd {ROOT}\n{script}"})
        if want is not None and answer["status"] != want:
            raise Failed(f"{self.name}: status {answer['status']}, expected {want}, of:\n{script}\n"
                         f"which said:\n{answer['text']}\n{self.logs()}")
        return answer["text"]

    def start(self, script):
        self.ask({"start": f"cd {ROOT}\n{script}"})

    def status(self, script):
        return self.ask({"run": script})["status"]

    def write(self, path, text):
        self.ask({"write": path, "text": text})

    def logs(self):
        return self.ask({"run": "tail -n 25 /run/log-* 2>/dev/null || true"})["text"]

    def log(self, unit):
        return self.run(f"cat /run/log-{unit}.service 2>/dev/null || true")

    def await_log(self, unit, text, count=1):
        self.wait(f"{unit} to say {text!r} {count} times", lambda: self.log(unit).count(text) >= count)

    def wait(self, what, is_so):
        end = time.monotonic() + WAIT_S
        while not is_so():
            if time.monotonic() > end:
                raise Failed(f"{self.name}: waited {WAIT_S} s for {what}\n{self.logs()}")
            time.sleep(0.05)

    def end(self):
        """Without a word to anybody: what is on its disk is all that is left of it."""
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def expect(is_so, text):
    if not is_so:
        raise Failed(text)


def rows(first, count):
    """Lines in Criteo's format; sample i is the same whoever makes it."""
    lines = []
    for i in range(first, first + count):
        user, item = i * 7919 % 1009, i * 104729 % 613
        label = int((user * 31 + item * 17) % 97 < 24 + 20 * (user % 3 == 0))
        dense = "\t".join(str((i * 31 + d * 7) % 50) for d in range(13))
        fields = "\t".join("%08x" % ((user * (f + 3) + item * (f % 5)) % 997 * 131071 & 0xffffffff)
                           for f in range(26))
        lines.append(f"{label}\t{dense}\t{fields}\n")
    return "".join(lines)


def play(steps, stranger=None):
    """Runs steps, in order, each a function of the boxes; prints as tests/run expects. A step that
    fails ends the day: what comes after it cannot be judged. The exit status."""
    boxes = {name: Box(name) for name in BOXES + ([stranger] if stranger else [])}
    passed, failed, left = 0, 0, list(steps)
    while left and not failed:
        step = left.pop(0)
        begin = time.monotonic()
        try:
            step(boxes)
            passed += 1
            print(f"pass {step.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception as error:  # also a defect of the step itself is told, and the boxes end
            failed += 1
            said = str(error) if isinstance(error, Failed) else traceback.format_exc()
            print(f"FAIL {step.__name__}")
            print("".join(f"    {line}\n" for line in said.split("\n")), flush=True)
    for step in left:
        print(f"skip {step.__name__}\n    a step before it failed")
    for box in boxes.values():
        if isinstance(box, Box):
            box.end()
    print(f"{passed} passed, {failed} failed, {len(left)} skipped")
    return 1 if failed else 0
