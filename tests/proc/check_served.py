#!/usr/bin/python3
"""check_served - is what was served what a run trains on?

  check_served.py LANYARD FOLDER FORMAT        table or json; FOLDER is empty

A server with a trained model logs what it serves (serve.log) before the run is there, is killed, and
goes on; outcomes come to the run, which joins and trains. Then the run has trained every event that
was acknowledged once, positives are the outcomes, and the rows that it trained are those of the
features as served. Status 1, and a line that says why, where that is not so.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(TREE, "tools"))
sys.path.insert(0, os.path.join(TREE, "tests/proc"))
from check_answers import hash_id  # noqa: E402
from read_model import read_model  # noqa: E402

QUESTIONS, CANDIDATES = 60, 5
WINDOW_S = 20  # by the clock of the run, or by what most records say: no outcome is late
FEATURES = [{"name": "u", "kind": "categorical"}, {"name": "x", "kind": "dense"},
            {"name": "i", "kind": "categorical"}, {"name": "tags", "kind": "multi"},
            {"name": "u x i", "kind": "categorical", "from": ["u", "i"]}]


def columns(form, front):
    path = {"u": "user.id", "i": "item"} if form == "json" else {}
    return front + [dict(one, **({"path": path[one["name"]]} if one["name"] in path else {}))
                    for one in FEATURES]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def mix(number):
    number = (number * 0x9E3779B97F4A7C15 + 0x1234567) & (2**64 - 1)
    return (number ^ number >> 29) * 0xBF58476D1CE4E5B9 >> 20 & 0xFFFFFFFF


def candidate(number):
    """User, x, item, tags, and whether it is clicked. What divides cells is in some."""
    r = [mix(number * 8 + k) for k in range(5)]
    item = f'i"{r[1] % 9}, of "{r[1] % 3}' if r[1] % 4 == 0 else f"i{r[1] % 9}"
    tags = [f"t{r[2] % 5}", f"t{r[2] // 5 % 7}"][:1 + r[2] % 2]
    return f"u{r[0] % 12}", r[3] % 50 / 4, item, tags, r[4] % 3 == 0


def train_first(lanyard, folder, form):
    config = os.path.join(folder, "first.json")
    rows = os.path.join(folder, "first.rows")
    with open(rows, "w", encoding="ascii") as file:
        for n in range(3000):
            u, x, i, tags, label = candidate(10**6 + n)
            if form == "json":
                file.write(json.dumps({"y": int(label), "user": {"id": u}, "x": x, "item": i,
                                       "tags": tags}) + "\n")
            else:
                i = '"' + i.replace('"', '""') + '"'
                file.write(f"{int(label)},{u},{x},{i},{'|'.join(tags)}\n")
    with open(config, "w", encoding="ascii") as file:
        json.dump(configuration(form, columns(form, [{"name": "y", "kind": "label"}])), file)
    run = os.path.join(folder, "first")
    call([lanyard, "up", config, "--out", run, "--set", f"stream.files={rows}"])
    return os.path.join(run, "model")


def configuration(form, cols):
    for one in cols:
        if one["kind"] == "multi" and form == "table":
            one["separator"] = "|"
    return {"workers": 2, "batch": {"samples_per_worker": 16, "wait_ms": 300},
            "stream": {"format": form, "table": {"header": False, "columns": cols}},
            "model": {"embedding_dim": 4, "mlp": [8, 4]}, "cache": {"rows": 2000},
            "timeouts": {"start_s": 30}}


def call(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(arguments[:4])}: {done.stdout}{done.stderr}")


class Server:
    def __init__(self, arguments):
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url.startswith("http"):
            sys.exit("the server does not say where it is")

    def ask(self, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(self.url + path, data, timeout=20) as answer:
            return json.loads(answer.read())

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(timeout=60)
        self.process.stdout.close()


def ask_some(server, first, count, clicks, shown):
    for n in range(first, first + count):
        rows = [candidate(n * CANDIDATES + k) for k in range(CANDIDATES)]
        body = {"context": {"u": rows[0][0]},
                "candidates": [{"x": x, "i": i, "tags": tags} for _, x, i, tags, _ in rows]}
        if n % 2:
            body["id"] = f"mine, {n}"
        name = server.ask("/predict", body)["id"]
        if n % 2 and name != f"mine, {n}":
            sys.exit(f"asked as {n}, answered as {name}")
        for k, (_, _, i, tags, clicked) in enumerate(rows):
            shown.append((rows[0][0], i, tags))
            if clicked:
                clicks.append(f"{name}.{k}")


def await_that(what, limit_s, function):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if function():
            return
        time.sleep(0.1)
    sys.exit(f"{what}: not within {limit_s} s")


def trained(run):
    """Samples and positives so far, by the metrics."""
    samples = positives = 0
    try:
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            for line in file:
                record = json.loads(line) if line.endswith("\n") else {}
                if record.get("record") == "iteration":
                    samples += record["samples"]
                    positives += record["quality"]["mean_label"] * record["samples"]
    except OSError:
        pass
    return samples, round(positives)


def keys_of(shown):
    number_of = hash_id()
    keys = set()
    for u, i, tags in shown:
        ids = [number_of(u), number_of(i), number_of(tags[0])]
        keys |= {0 << 56 | ids[0], 1 << 56 | ids[1]} | {2 << 56 | number_of(tag) for tag in tags}
    return keys


def outcome(form, name, time_s):
    if form == "json":
        return json.dumps({"id": name, "t": time_s}) + "\n"
    return f'"{name}"\n'


def passes(outcomes, form, dated):
    """Time of a join is what most of the last records say: so that it passes, outcomes of nobody go on coming."""
    if dated:
        time.sleep(0.5)
        outcomes.write("".join(outcome(form, f"of nobody {k}", time.time()) for k in range(80)))
        outcomes.flush()


def main():
    lanyard, folder, form = sys.argv[1:]
    dated = form == "json"
    model = train_first(lanyard, folder, form)
    port, fifo = free_port(), os.path.join(folder, "outcomes")
    os.mkfifo(fifo)
    front = [{"name": "id", "kind": "id"}] + ([{"name": "t", "kind": "time"}] if dated else [])
    cols = columns(form, front)
    config = configuration(form, cols)
    config["stream"].update(source="feed", join={"outcomes": fifo, "format": form, "columns": front,
                                                 "window_s": WINDOW_S})
    config["feed"] = {"listen": f"127.0.0.1:{port}"}
    path, spool = os.path.join(folder, "config.json"), os.path.join(folder, "spool")
    with open(path, "w", encoding="ascii") as file:
        json.dump(config, file)
    serve = [lanyard, "serve", model, "--set", "serve.address=127.0.0.1:0", "--set",
             f"serve.log={spool}", "--set", f"feed.to=127.0.0.1:{port}", "--set",
             f"stream.table.columns={json.dumps(cols)}", "--set",
             f"stream.join={json.dumps(config['stream']['join'])}"]
    clicks, shown = [], []
    server = Server(serve)
    ask_some(server, 0, QUESTIONS // 3, clicks, shown)  # nobody is there yet
    await_that("the spool", 20,
               lambda: server.ask("/metrics")["log_events"] == len(shown))
    server.end(signal.SIGKILL)
    run, log = os.path.join(folder, "run"), open(os.path.join(folder, "log"), "w+")
    up = subprocess.Popen([lanyard, "up", path, "--out", run, "--init", model], stdout=log,
                          stderr=log)
    outcomes = open(fifo, "w", encoding="ascii")
    server = Server(serve)
    ask_some(server, QUESTIONS // 3, QUESTIONS - QUESTIONS // 3, clicks, shown)
    await_that("the hub", 30, lambda: server.ask("/metrics")["log_sent"] == len(shown))
    counts = server.ask("/metrics")
    if counts["log_dropped"] or counts["log_events"] != (QUESTIONS - QUESTIONS // 3) * CANDIDATES:
        sys.exit(f"logged: {counts}")
    for name in clicks:
        outcomes.write(outcome(form, name, time.time()))
    outcomes.flush()
    await_that(f"{len(shown)} samples", 90, lambda: passes(outcomes, form, dated) or trained(run)[0] >= len(shown))
    server.end()
    up.send_signal(signal.SIGINT)
    if up.wait(timeout=60):
        log.seek(0)
        sys.exit(log.read())
    samples, positives = trained(run)
    if (samples, positives) != (len(shown), len(clicks)):
        sys.exit(f"{samples} samples, {positives} positives; served were {len(shown)}, "
                 f"{len(clicks)} had an outcome")
    rows = read_model(os.path.join(run, "model"))
    own = {key for key in rows.keys[rows.versions > 0].tolist() if key >> 56 < 3}
    want = keys_of(shown)
    if own != want:
        sys.exit(f"{len(own - want)} rows were trained of what nobody was shown, {len(want - own)} "
                 f"were not")
    print(f"{samples} events served and trained, {positives} with an outcome, {len(want)} rows")


if __name__ == "__main__":
    main()
