"""A run on the boxes of site_boxes.py: keys, units, input, checkpoints; and what runs a test of it."""
import json
import os
import subprocess
import sys

from site_boxes import BOXES, LAN, ROOT, blocks, play, rows

RUN = "/var/lib/lanyard/run"
DATA = "/srv/data"
CONFIG = "/etc/lanyard/cluster.json"
NO_RIGHTS = 77


def everywhere(boxes, script):
    return {name: boxes[name].run(script) for name in BOXES}


def program_and_keys(boxes):
    everywhere(boxes, blocks()["on every box"][0])
    everywhere(boxes, blocks()["on every box"][1])
    public = {name: boxes[name].run(f"cat /etc/lanyard/{name}.public") for name in BOXES}
    for box in boxes.values():
        box.run("mkdir -p /etc/lanyard/boxes")
        for name, text in public.items():
            box.write(f"/etc/lanyard/boxes/{name}.public", text)


def state(box, unit):
    """(state, starts, signs of life) of a unit."""
    _, now, starts, signs = box.run(f"systemctl show {unit}").split()
    return now, int(starts.split("=")[1]), int(signs.split("=")[1])


def await_state(box, unit, want):
    box.wait(f"{unit} to be {want}", lambda: state(box, unit)[0] == want)


def iteration(hub):
    """The newest that was trained, of the run that is at work. What follows the last line feed may be
    half a record that is being written."""
    text = hub.run(f"tail -c 65536 {RUN}/metrics.jsonl 2>/dev/null || true")
    lines = [line for line in text.split("\n")[:-1] if '"record":"iteration"' in line[:24]]
    return json.loads(lines[-1])["iteration"] if lines else 0


def await_iteration(hub, number):
    hub.wait(f"iteration {number}", lambda: iteration(hub) >= number)


def await_checkpoint(hub, folder, number):
    hub.wait(f"the checkpoint of iteration {number}", lambda: hub.status(
        f"test -f {folder}/ckpt-{number:012d}/manifest.json") == 0)


def write_rows(hub, name, first, count):
    """A file of samples in DATA that all may read."""
    hub.run(f"mkdir -p {DATA}")
    hub.write(f"{DATA}/{name}", rows(first, count))


def feed(hub, name, batch, first, last):
    """The rows of iterations first + 1 to last of a file in DATA; waits until they are trained."""
    hub.start(f"tail -n +{first * batch + 1} {DATA}/{name} | head -n {(last - first) * batch} "
              ">/var/lib/lanyard/samples")
    await_iteration(hub, last)


def skip(name, reason):
    print(f"skip {name}\n    {reason}\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)


def main(path, name, steps, rates, stranger=None):
    """Ends the program: plays the steps of the test program at path, whose skip has this name, on
    boxes with links of these rates {BOX: Mbit/s}; with an argument only if a step has it in its name."""
    if len(sys.argv) > 1 and not any(sys.argv[1] in step.__name__ for step in steps):
        print("0 passed, 0 failed, 0 skipped")
        sys.exit(0)
    if os.environ.get("LANYARD_SITE") == "inside":
        sys.exit(play(steps, stranger))
    if os.geteuid() != 0:
        skip(name, "it needs root, for users and services in the boxes")
    if not os.access(os.path.join(ROOT, "build", "lanyard"), os.X_OK):
        skip(name, "build/lanyard is not there")
    links = [f"{box}={mbit}" for box, mbit in rates.items()]
    day = subprocess.run([LAN, "with"] + links + ["--", "/usr/bin/python3", "-B", path],
                         env=dict(os.environ, LANYARD_SITE="inside"), check=False,
                         stdout=None if sys.stdout.isatty() else subprocess.PIPE, text=True)
    if day.returncode == NO_RIGHTS:
        skip(name, day.stdout.strip().removeprefix("skip: ") if day.stdout else "see above")
    print(day.stdout or "", end="")
    sys.exit(day.returncode)
