#!/usr/bin/env python3
"""What builds have saved, and whether this one goes on from it.

    saved.py make FOLDER [CASE]    records what the program (LANYARD) saves
    saved.py begin FOLDER CASE     leaves what is recorded there
    saved.py check ARCHIVE         goes on from what is in one archive of tests/golden/saved

An archive CASE.tar.xz holds the folder of a run as a program left it: configuration, inputs,
checkpoints, model, journals, spools, metrics. `expect.json` in it has what that program itself said
when it went on from there; the program of today must say the same. Plans are compared by their
fingerprint, losses to 1e-3, since values differ in rounding between machines.

tests/golden/saved/FORMAT/ has what was written in that format (tests/golden/saved/README.md).
"""
import io
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

LANYARD = os.path.abspath(os.environ.get("LANYARD", "build/lanyard"))
LIMIT_S = 100


# The last format whose builds had another default, and that one: it plans what these builds planned.
DEFAULTS_OF_BEFORE = [("2026-11-28b", {"dispatch": {"hybrid": "paper"}})]


def merged(base, more):
    result = dict(base)
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            value = merged(result[key], value)
        result[key] = value
    return result


SMALL = {"workers": 2, "batch": {"samples_per_worker": 8}, "log": {"level": "warn"},
         "model": {"embedding_dim": 2, "mlp": [4]}, "planner": {"threads": 1},
         "compute": {"threads": 1}, "dispatch": {"measure_compute": False},
         "timeouts": {"start_s": 60, "peer_s": 60}, "cache": {"rows": 400}}
SAVING = {"every_iterations": 4, "full_every": 2, "keep": 1, "at_end": True}
COLUMNS = [{"name": "id", "kind": "id"}, {"name": "t", "kind": "time"},
           {"name": "u", "kind": "categorical"}, {"name": "v", "kind": "multi"},
           {"name": "x", "kind": "dense"}]
UNTIMED = [COLUMNS[0], {"name": "t", "kind": "ignore"}, *COLUMNS[2:]]
LABEL = [{"name": "y", "kind": "label"}]


GENERATED = merged(SMALL, {
    "stream": {"format": "synthetic", "samples_max": 96,
               "synthetic": {"scale": 0.0001, "clusters": 2, "shape": "search"}},
    "checkpoint": SAVING})
READ = merged(SMALL, {"stream": {"format": "table", "files": "events.csv",
                                 "table": {"columns": [{"name": "id", "kind": "ignore"},
                                                       *COLUMNS[1:], *LABEL]}},
                      "checkpoint": SAVING})
PUBLISH = {"every_s": 0.1, "keep": 2,
           "guard": {"samples": 100, "log_loss": 100, "calibration": 100}}
SENT = merged(SMALL, {
    "workers": 1, "batch": {"wait_ms": 20},
    "stream": {"format": "table", "source": "http", "id": "id", "table": {"columns": UNTIMED},
               "join": {"source": "http", "window_s": 100000000, "resend_s": 0,
                        "columns": [{"name": "id", "kind": "id"},
                                    {"name": "y", "kind": "label"}]}},
    "checkpoint": {"at_end": True, "keep": 1}})


def number_of(i, below):
    return (i * 2654435761 % 4294967296) * below >> 32


def event(i, *more):
    return [f"e{i}", str(1000 + i), f"u{number_of(i, 40)}",
            f"a{number_of(i + 500, 30)}|b{number_of(i + 900, 20)}", str(number_of(i + 70, 100)), *more]


def label_of(i):
    return str(int(number_of(i + 33, 3) == 0))


def write(path, lines):
    with open(path, "w", encoding="ascii") as file:
        file.writelines(line + "\n" for line in lines)


def write_labelled(count):
    write("events.csv", [",".join(event(i, label_of(i))) for i in range(count)])


def write_objects(count):
    write("events.jsonl", [json.dumps({"id": f"e{i - i % 5 // 4}", "u": f"u{number_of(i, 40)}",
                                       "x": number_of(i + 70, 100), "y": int(label_of(i)),
                                       "z": number_of(i + 7, 2)}) for i in range(count)])


def write_joined(count):
    write("events.csv", [",".join(event(i)) for i in range(count)])
    write("outcomes.csv", [f"e{i},{1000 + i + 5 * number_of(i + 5, 4)},{label_of(i)}"
                           for i in range(count) if i % 3])


def write_classes(count):
    write("events.csv", ["y,u,x"] + [f"{number_of(i, 3)},u{number_of(i, 9)},{number_of(i, 100)}"
                                     for i in range(count)])


# Each: the configuration, what is written for it with how many lines at first and then, and what
# else is set when it goes on.
CASES = {
    "esd": {"model": True, "config": merged(GENERATED, {
        "workers": 3, "dispatch": {"policy": "esd", "participants": "rotate", "alpha": 0.5},
        "rows": {"admit": 2, "admit_bytes": 4096}, "ps": {"shards": 2},
        "optimizer": {"rows": {"name": "adam"}, "dense": {"name": "adam"}},
        "cache": {"rows": 2000}})},
    "makespan": {"write": write_labelled, "lines": (96, 192), "config": merged(READ, {
        "workers": 3, "links": {"workers": [1, 0.01, 0.3]},
        "dispatch": {"policy": "makespan", "participants": "auto", "window": 3},
        "watch": {"column": "u"}, "cache": {"eviction": "lfu", "lookahead": 2, "rows": 100},
        "optimizer": {"rows": {"name": "ftrl"}}})},
    "handed": {"write": write_labelled, "lines": (96, 192), "config": merged(READ, {
        "workers": 3, "links": {"ps_gbps": 0.1},
        "dispatch": {"policy": "makespan", "hand_over": True, "reduce": True}})},
    "herald": {"write": write_labelled, "lines": (96, 192), "config": merged(READ, {
        "dispatch": {"policy": "herald", "tables": 5, "view": "snapshot"},
        "cache": {"eviction": "lru", "rows": 100}, "rows": {"admit_share": 0.5}})},
    "laia": {"config": merged(GENERATED, {
        "dispatch": {"policy": "laia"}, "cache": {"eviction": "light_lfu"},
        "rows": {"expire_s": 1000, "expire_iterations": 6},
        "stream": {"synthetic": {"labels": 2}}})},
    "controlled": {"timed": True, "write": write_labelled,
                   "lines": (96, 192), "config": merged(READ, {
        "dispatch": {"policy": "esd", "alpha": "auto", "measure_compute": True},
        "links": {"pin": False, "probe_s": 0}, "rows": {"max": 60}})},
    "budget": {"timed": True, "write": write_labelled,
                   "lines": (96, 192), "config": merged(READ, {
        "dispatch": {"policy": "makespan", "budget_ms": 5}, "network": {"dense_wire": "int8"},
        "optimizer": {"rows": {"name": "rowwise_adagrad"}, "dense": {"name": "momentum"}}})},
    "stale": {"write": write_labelled, "lines": (96, 192), "config": merged(READ, {
        "dispatch": {"policy": "random"}, "consistency": {"staleness": 3}})},
    "homes": {"write": write_labelled, "lines": (96, 192), "config": merged(merged(READ, {
        "boxes": [{"name": "a", "gbps": 1, "workers": 1, "shards": 1},
                  {"name": "b", "gbps": 0.5, "workers": 1, "shards": 1},
                  {"name": "c", "gbps": 0.5, "workers": 1}],
        "ps": {"homes": "planned"}, "rows": {"expire_iterations": 3},
        "dispatch": {"policy": "makespan"}}), {}), "without": ["workers"]},
    "files": {"model": True, "write": write_labelled, "lines": (160, 320), "config": merged(SMALL, {
        "stream": {"format": "table", "files": "events.csv", "id": "id", "negatives_keep": 0.7,
                   "table": {"columns": COLUMNS + LABEL}},
        "checkpoint": SAVING})},
    "objects": {"model": True, "write": write_objects, "lines": (160, 320), "config": merged(SMALL, {
        "stream": {"format": "json", "files": "events.jsonl", "id": "id", "id_window": 50,
                   "table": {"columns": [
                       {"name": "u", "kind": "categorical"}, {"name": "x", "kind": "dense"},
                       {"name": "y", "kind": "label"},
                       {"name": "z", "kind": "label", "loss_weight": 2}]}},
        "checkpoint": {"every_iterations": 4, "full_every": 3, "keep": 1, "at_end": True}})},
    "classes": {"model": True, "write": write_classes, "lines": (160, 320), "config": merged(SMALL, {
        "stream": {"format": "table", "files": "events.csv", "table": {
            "header": True, "columns": [{"name": "y", "kind": "label", "classes": 3},
                                        {"name": "u", "kind": "categorical"},
                                        {"name": "x", "kind": "dense"}]}},
        "checkpoint": {"at_end": True}})},
    "join": {"write": write_joined, "lines": (160, 320), "config": merged(SMALL, {
        "stream": {"format": "table", "files": "events.csv",
                   "table": {"columns": COLUMNS},
                   "join": {"outcomes": "outcomes.csv", "window_s": 8, "late": "train",
                            "at_end": "keep",
                            "columns": [{"name": "id", "kind": "id"}, {"name": "t", "kind": "time"},
                                        {"name": "y", "kind": "label"}]}},
        "checkpoint": SAVING})},
    "sent": {"live": True, "config": merged(SENT, {
        "watch": {"column": "u"}, "publish": PUBLISH})},
    "standby": {"live": True, "standby": True,
                "config": merged(SENT, {"checkpoint": {"every_iterations": 2}})},
    "followed": {"write": write_labelled, "lines": (96, 192), "followed": True,
                 "config": merged(READ, {"batch": {"wait_ms": 20}, "publish": PUBLISH, "stream": {
                     "source": "follow", "id": "id",
                     "table": {"columns": COLUMNS + LABEL}}})},
    "spool": {"spooled": True, "config": merged(SMALL, {
        "workers": 1, "batch": {"wait_ms": 20},
        "stream": {"format": "table", "source": "http", "samples_max": 48,
                   "table": {"columns": UNTIMED + LABEL}},
        "checkpoint": {"at_end": True}})},
    "served": {"model": True, "served": True, "config": merged(SMALL, {
        "workers": 1, "batch": {"wait_ms": 20},
        "stream": {"format": "table", "files": "events.csv", "table": {
            "columns": [{"name": "id", "kind": "ignore"}, {"name": "t", "kind": "ignore"},
                        *COLUMNS[2:], *LABEL]}}})},
}


# ---- running the program -------------------------------------------------------------------------

def fail(text):
    print(text)
    sys.exit(1)


def lanyard(*arguments, want=0):
    done = subprocess.run([LANYARD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=LIMIT_S, check=False, text=True)
    if done.returncode != want:
        fail(f"lanyard {' '.join(arguments)}: status {done.returncode}, expected {want}\n"
             + done.stdout)
    return done.stdout


def objects_of(said):
    """Of what was said, without warnings before it."""
    return json.loads(said[said.index("{"):])


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Live:
    """A command that goes on until it is told to end."""

    def __init__(self, *arguments):
        self.log = tempfile.TemporaryFile()
        self.arguments = arguments
        self.process = subprocess.Popen([LANYARD, *arguments], stdout=self.log, stderr=self.log)

    def said(self):
        self.log.seek(0)
        return self.log.read().decode()

    def await_(self, what, of):
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            got = of()
            if got:
                return got
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.process.kill()
        self.process.wait()
        fail(f"lanyard {' '.join(self.arguments)}: {what} did not come\n" + self.said())

    def end(self, with_signal=True):
        if with_signal:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if status:
            fail(f"lanyard {' '.join(self.arguments)}: status {status}\n" + self.said())


def post(port, path, lines):
    body = "".join(line + "\n" for line in lines).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def samples_trained(folder):
    total = 0
    try:
        with open(f"{folder}/metrics.jsonl", encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n") and (record := json.loads(line))["record"] == "iteration":
                    total += record["samples"]
    except FileNotFoundError:
        pass
    return total


def summary(folder):
    with open(f"{folder}/summary.json", encoding="utf-8") as file:
        return json.load(file)


# ---- what is recorded of a case, before and after it goes on -------------------------------------

def up(out, *more):
    lanyard("up", "config.json", "--out", out, *more)


def run_live(case, resume, first, then, total):
    """Posts events and outcomes of two ranges; ends once so many samples were trained."""
    port, standby = free_port(), None
    sets = ["--set", f"stream.http.listen=127.0.0.1:{port}"]
    if case.get("standby"):
        sets += ["--set", f"coordinator.standby=127.0.0.1:{free_port()}", "--set",
                 f"network.coordinator=127.0.0.1:{free_port()}"]
        standby = Live("standby", "config.json", "--out", "copy", *sets, "--set",
                       "log.level=info")
        standby.await_("its door", lambda: "listening" in standby.said())
    run = Live("up", "config.json", "--out", "run", *sets, *["--resume"] * resume)
    events = [",".join(event(i)) for i in first]
    outcomes = [f"e{i},{label_of(i)}" for i in then]
    if events:
        run.await_("/events", lambda: post(port, "/events", events))
    run.await_("/outcomes", lambda: post(port, "/outcomes", outcomes))
    run.await_(f"{total} samples", lambda: samples_trained("run") >= total)
    run.end()
    if standby:
        standby.end()


def run_followed(resume, total):
    run = Live("up", "config.json", "--out", "run", *["--resume"] * resume)
    run.await_(f"{total} samples", lambda: samples_trained("run") >= total)
    if not resume:
        run.await_("a published model", lambda: os.path.exists("run/published/current.json"))
    run.end()


def serve():
    """Asks a server that writes down what it answered."""
    port = free_port()
    server = Live("serve", "run/model", "--set", f"serve.address=127.0.0.1:{port}", "--set",
                  f"feed.to=127.0.0.1:{free_port()}", "--set", "serve.log=spool", "--set",
                  f"stream.table.columns={json.dumps(UNTIMED)}", "--set", 'stream.join.columns='
                  '[{"name": "id", "kind": "id"}]', "--set", "stream.join.source=http")
    for i in range(8):
        question = json.dumps({"id": f"q{i}", "candidates": [
            {"u": f"u{k}", "v": [f"a{k}"], "x": k} for k in range(3)]})
        server.await_("/predict", lambda text=question: post(port, "/predict", [text]))
    server.end()


def spool_events():
    port, nobody = free_port(), free_port()
    feeder = Live("feed", "config.json", "--spool", "spool", "--set",
                  f"stream.http.listen=127.0.0.1:{port}", "--set", f"feed.to=127.0.0.1:{nobody}")
    feeder.await_("/events", lambda: post(port, "/events",
                                          [",".join(event(i, label_of(i))) for i in range(48)]))
    feeder.end()


def feed_spool(out, *more):
    """A run that is fed what a spool has."""
    port, listen = free_port(), free_port()
    run = Live("up", "config.json", "--out", out, "--set", "stream.source=feed", "--set",
               "stream.files=[]", "--set", f"feed.listen=127.0.0.1:{listen}", *more)
    feeder = Live("feed", "config.json", "--spool", "spool", "--set", "stream.source=http", "--set",
                  "stream.files=[]", *more, "--set", f"stream.http.listen=127.0.0.1:{port}",
                  "--set", f"feed.to=127.0.0.1:{listen}")
    run.end(with_signal=False)
    feeder.end()


def begin(case):
    """Runs a case up to what is recorded."""
    config = dict(case["config"])
    for name in case.get("without", []):
        del config[name]
    with open("config.json", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    if case.get("live"):
        run_live(case, False, range(64), range(32), 32)
    elif case.get("spooled"):
        spool_events()
    elif case.get("served"):
        write_labelled(48)
        up("run")
        serve()
    elif case.get("followed"):
        case["write"](case["lines"][0])
        run_followed(False, case["lines"][0])
    else:
        if "write" in case:
            case["write"](case["lines"][0])
        up("run")


def planned_again():
    """What a simulation plans by what the run has recorded."""
    said = objects_of(lanyard("sim", "config.json", "--records", "run/records.jsonl", "--json",
                              "--set", "sim.warmup=0"))
    return said["runs"][0]["plan_fingerprint"]


def known(case):
    """What the program says of what is there, before anything goes on."""
    told = {}
    if case.get("spooled"):
        return told
    if case.get("served"):
        told["verified"] = "whole" in lanyard("verify", "run/model")
        return told
    told["verified"] = "whole" in lanyard("verify", "run/checkpoints")
    folders = sorted(os.listdir("run/checkpoints"))
    newest = [name for name in folders if name.startswith("ckpt-")][-1]
    for name, folder in (("checkpoint", f"run/checkpoints/{newest}"), ("model", "run/model")):
        if case.get("live") or not (case.get("model") or name == "checkpoint"):
            continue
        said = objects_of(lanyard("eval", folder, "--json", "--set", "stream.source=file"))
        told[name] = {"samples": said["samples"], "logloss": said["logloss"]}
    if os.path.exists("run/published/current.json"):
        told["published"] = "whole" in lanyard("verify", "run/published")
    if case.get("standby"):
        told["copy"] = "whole" in lanyard("verify", "copy/checkpoints")
    if not case.get("live") and not case.get("followed"):
        lanyard("report", "run", "--out", "report.html")
        told["planned again"] = planned_again()
    return told


def go_on(case):
    """Goes on from what was recorded; what it came to."""
    if case.get("live"):
        run_live(case, True, [3, 40, 64], list(range(32, 65)), 65)
    elif case.get("spooled"):
        feed_spool("run")
    elif case.get("served"):
        feed_spool("fed", "--set", f"stream.table.columns={json.dumps(UNTIMED)}", "--set", "stream.join.source=http", "--set",
                   'stream.join.columns=[{"name": "id", "kind": "id"}]', "--set",
                   "stream.join.window_s=0", "--set", "stream.join.resend_s=0", "--set",
                   "stream.samples_max=24", "--set", f"stream.http.listen=127.0.0.1:{free_port()}")
        return {"samples": summary("fed")["samples"]}
    elif case.get("followed"):
        with open("events.csv", "a", encoding="ascii") as file:
            file.writelines(",".join(event(i, label_of(i))) + "\n"
                            for i in range(case["lines"][0] - 5, case["lines"][1]))
        run_followed(True, case["lines"][1])
    elif "write" in case:
        case["write"](case["lines"][1])
        up("run", "--resume")
    else:
        up("run", "--resume", "--set", "stream.samples_max=192")
    said = summary("run")
    names = ["iterations", "samples", "plan_fingerprint", "logloss", "dense_clipped",
             "invalid_predictions", "join", "duplicates", "malformed", "samples_left_out"]
    if case.get("live") or case.get("spooled") or case.get("followed"):
        names = ["samples", "duplicates", "join"]
    elif case.get("timed"):
        names = ["iterations", "samples", "logloss"]
    told = {name: said[name] for name in names if name in said}
    if "join" in told:
        told["join"] = {name: value for name, value in told["join"].items()
                        if isinstance(value, int)}
    told["verified"] = "whole" in lanyard("verify", "run/checkpoints")
    return told


# When the window of an event ends follows from what most records say of the time; for these builds
# the latest one said it. What is read is the same, and is read once.
OTHER_TIMES = {("2026-11-23-0052", "join"), ("2026-11-28", "join"), ("2026-11-28b", "join")}


# Who takes part by "rotate" begins anew where the configuration is another one, and to a program
# with other keys it is: plans after that are others.
TURNS_ANEW = {("2026-11-28e", "esd")}


def of_other_times(told):
    read = {name: told["join"][name] for name in ("events", "outcomes")} if "join" in told else {}
    return {"verified": told["verified"], "join": read} if read else {"verified": told["verified"]}


def same(want, got):
    if isinstance(want, dict):
        return isinstance(got, dict) and all(k in got and same(v, got[k]) for k, v in want.items())
    if isinstance(want, float) and isinstance(got, (int, float)):
        return math.isclose(want, got, rel_tol=1e-3, abs_tol=1e-3)
    return want == got


# ---- commands ------------------------------------------------------------------------------------

def pack(archive, case):
    with tarfile.open(archive, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as tar:
        for folder, folders, files in os.walk("."):
            folders.sort()
            for name in sorted(files):
                path = os.path.relpath(os.path.join(folder, name), ".")
                if path.startswith("run/model/") and not case.get("model"):
                    continue
                with open(path, "rb") as file:
                    data = file.read()
                info = tarfile.TarInfo(path)
                info.size = len(data)
                info.mode = 0o600
                tar.addfile(info, io.BytesIO(data))


def make(out, names):
    out = os.path.abspath(out)
    os.makedirs(out, exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory(prefix="saved-") as folder:
            case = CASES[name]
            os.makedirs(f"{folder}/kept")
            os.chdir(f"{folder}/kept")
            begin(case)
            shutil.copytree(f"{folder}/kept", f"{folder}/used")  # other inodes, as of an archive
            os.chdir(f"{folder}/used")
            expect = {"case": name, "build": lanyard("--version").splitlines()[0],
                      "known": known(case), "then": go_on(case)}
            os.chdir(f"{folder}/kept")
            with open("expect.json", "w", encoding="utf-8") as file:
                json.dump(expect, file, indent=1)
            pack(f"{out}/{name}.tar.xz", case)
            print(name, os.path.getsize(f"{out}/{name}.tar.xz"), json.dumps(expect))
            os.chdir("/")


def say_defaults_of(of_format):
    if not os.path.exists("config.json"):
        return
    with open("config.json", encoding="utf-8") as file:
        config = json.load(file)
    for last, meant in DEFAULTS_OF_BEFORE:
        if of_format <= last:
            config = merged(meant, config)
    write("config.json", [json.dumps(config)])


def check(archive):
    archive = os.path.abspath(archive)
    with tempfile.TemporaryDirectory(prefix="saved-") as folder:
        os.chdir(folder)
        with tarfile.open(archive) as tar:
            tar.extractall(folder)
        with open("expect.json", encoding="utf-8") as file:
            expect = json.load(file)
        case = CASES[expect["case"]]
        of_format = os.path.basename(os.path.dirname(archive))
        say_defaults_of(of_format)
        for name, what in (("known", known), ("then", go_on)):
            got = what(case)
            if (of_format, expect["case"]) in OTHER_TIMES:
                expect[name] = of_other_times(expect[name])
            if (of_format, expect["case"]) in TURNS_ANEW and name == "then":
                del expect[name]["plan_fingerprint"]
            if not same(expect[name], got):
                fail(f"{archive}, of {expect['build']}: {name}: expected\n"
                     f"  {json.dumps(expect[name])}\nfound\n  {json.dumps(got)}")
        os.chdir("/")


def main():
    if len(sys.argv) >= 3 and sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3:] or CASES)
    elif len(sys.argv) == 4 and sys.argv[1] == "begin":
        os.makedirs(sys.argv[2])
        os.chdir(sys.argv[2])
        begin(CASES[sys.argv[3]])
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        fail(__doc__)


main()
