#!/usr/bin/python3
"""check_answers - do eval, predict, serve, liblanyard and numpy say the same of the same rows?

  check_answers.py make FORMAT FILE COUNT FIRST        rows of a format, made up
  check_answers.py same LANYARD LIBRARY MODEL FORMAT ROWS
  check_answers.py follow LANYARD LIBRARY RUN           of a run that has published (synthetic rows)
  check_answers.py copy LANYARD LIBRARY CONFIG FOLDER   of a run that publishes to another box, with keys
  check_answers.py columns LANYARD FOLDER               of columns of every kind, some negatives left out
  check_answers.py disk LANYARD MODEL                    a server whose rows are on disk, and one in memory
  check_answers.py graph LANYARD FOLDER                 of a graph, by tools/graph_samples.py
  check_answers.py shared OUT ROWS                       of a run on `history` rows: its rows, its columns

FORMAT: criteo, avazu, movielens, history (of items, in the table of item), graph (a node of
4 classes, 3 neighbours, and theirs), labels (two labels, either may be missing, and a time). numpy's side is tools/read_model.py and the parsing here: none of
lanyard's own code. Status 1, and a line that says why, where two differ by more than 1e-6.
"""
import ctypes
import ctypes.util
import json
import math
import os
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np

sys.dont_write_bytecode = True
TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(TREE, "python"))
sys.path.insert(0, os.path.join(TREE, "tools"))
from read_model import read_model  # noqa: E402

BOUND = 1e-6
MISSING = (1 << 56) - 1
AVAZU = ["id", "click", "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category",
         "app_id", "app_domain", "app_category", "device_id", "device_ip", "device_model",
         "device_type", "device_conn_type", "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21"]
CANDIDATES = 20  # of a request


# ---- rows

def make(kind, path, count, first):
    def mix(number):
        number = (number * 0x9E3779B97F4A7C15 + 0x1234567) & (2**64 - 1)
        return (number ^ number >> 29) * 0xBF58476D1CE4E5B9 >> 20 & 0xFFFFFFFF

    with open(path, "w", encoding="ascii") as file:
        if kind == "avazu":
            file.write(",".join(AVAZU) + "\n")
        for i in range(first, first + count):
            r = [mix(i * 64 + k) for k in range(48)]
            if kind == "criteo":
                ids = [r[k] % (3 + k * k) for k in range(26)]
                label = int(mix(ids[3] * 1000 + ids[5]) % 4 == 0)
                cells = [str(label)] + ["" if r[26 + k] % 5 == 0 else str(r[26 + k] % 300 - 2)
                                        for k in range(13)]
                cells += ["" if r[k] % 11 == 0 else f"{mix(ids[k] + 7 * k):08x}" for k in range(26)]
                file.write("\t".join(cells) + "\n")
            elif kind == "avazu":
                cells = [str(10**15 + i)] + [f"{mix(r[k] % (2 + k) + 100 * k):08x}"
                                             for k in range(1, 24)]
                cells[1] = str(int(r[5] % 7 < 2))
                cells[9] = "" if r[9] % 4 == 0 else cells[9]
                file.write(",".join(cells) + "\n")
            elif kind == "labels":
                user, item = r[0] % 40, r[1] % 30
                click, buy = int(mix(user * 3 + item) % 3 == 0), int(mix(item * 5) % 4 == 0)
                cells = ["" if r[2] % 9 == 0 else str(click), f"u{user}", f"i{item}",
                         f"{1764000000 + r[3] % 7200 / 8}", "" if r[4] % 3 == 0 else str(buy)]
                file.write(",".join(cells) + "\n")
            elif kind == "graph":
                node = r[0] % 90
                near = ["" if r[2 + k] % 4 == 0 else str(node % 4 + 4 * (r[5 + k] % 23) + (r[8 + k] % 3 == 0))
                        for k in range(3)]
                if r[31] % 20 == 0:  # neighbours that few have
                    near[0] = str(1000 + r[32] % 50 * 4 + node % 4)
                far = ["|".join(str(int(one) % 4 + 4 * (r[12 + 5 * k + j] % 23)) for j in range(r[27 + k] % 5))
                       if one else "" for k, one in enumerate(near)]
                label = r[1] % 4 if r[1] % 11 == 0 else node % 4
                file.write(",".join([str(label), "" if r[30] % 50 == 0 else str(node), *near, *far]) + "\n")
            elif kind == "history":
                user, item, count = r[0] % 90 + 1, r[1] % 40 + 1, r[2] % 7
                liked = [r[3 + k] % 60 + 1 for k in range(count)] + [item] * (r[20] % 5 == 0)
                score = 1 + mix(item % 5 * 3 + sum(one % 5 == item % 5 for one in liked) // 2) % 5
                file.write(f"{user}\t{item}\t{'|'.join(map(str, liked))}\t{score}\t{88 * 10**7 + i}\n")
            else:
                user, item = r[0] % 90 + 1, r[1] % 160 + 1
                file.write(f"{user}\t{item}\t{1 + mix(user * 7 + item % 9) % 5}\t{88 * 10**7 + i}\n")


def hash_id():
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def function(text):
        number = library.XXH3_64bits(text.encode(), len(text)) & MISSING
        return number - (number == MISSING)
    return function


class Rows:
    """labels, dense (samples x features, transformed), keys, and cells by name."""

    def __init__(self, kind, path):
        with open(path, encoding="ascii") as file:
            self.lines = file.read().splitlines()
        if kind == "avazu":
            self.header, self.lines = self.lines[0], self.lines[1:]
        rows = [line.split("," if kind in ("avazu", "labels", "graph") else "\t") for line in self.lines]
        dense, ids = [], []
        if kind == "criteo":
            names = [f"I{i}" for i in range(1, 14)] + [f"C{i}" for i in range(1, 27)]
            self.labels = [int(row[0]) for row in rows]
            self.cells = {name: [row[1 + i] for row in rows] for i, name in enumerate(names)}
            dense = [[math.log1p(max(int(cell or 0), 0)) for cell in row[1:14]] for row in rows]
            ids = [[int(cell, 16) if cell else MISSING for cell in row[14:]] for row in rows]
        elif kind == "avazu":
            number_of = hash_id()
            self.labels = [int(row[1] == "1") for row in rows]
            self.cells = {name: [row[2 + i] for row in rows] for i, name in enumerate(AVAZU[2:])}
            ids = [[number_of(cell) if cell else MISSING for cell in row[2:]] for row in rows]
        elif kind == "labels":
            number_of = hash_id()
            self.labels = [[row[0], row[4]] for row in rows]
            self.cells = {name: [row[1 + i] for row in rows] for i, name in enumerate(["user", "item", "x"])}
            dense, ids = [[float(row[3])] for row in rows], [[number_of(c) for c in row[1:3]] for row in rows]
        elif kind == "graph":
            self.labels = [int(row[0]) for row in rows]
            far = [[list(dict.fromkeys(cell.split("|"))) if cell else [] for cell in row[5:]] for row in rows]
            self.cells = {"node": [row[1] for row in rows]}
            self.cells.update({f"near{k}": [row[1 + k] for row in rows] for k in (1, 2, 3)})
            self.cells.update({f"far{k}": [own[k - 1] for own in far] for k in (1, 2, 3)})
            cells = [[[cell] if cell else [] for cell in row[1:5]] + own for row, own in zip(rows, far)]
            self.keys = [[f << 56 | int(one) for f, cell in enumerate(own) for one in cell or [MISSING]]
                         for own in cells]
            self.dense = np.zeros((len(rows), 0), np.float32)
            return
        elif kind == "history":
            self.labels = [int(int(row[3]) >= 4) for row in rows]
            many = [list(dict.fromkeys(row[2].split("|"))) if row[2] else [] for row in rows]
            self.cells = {"user": [row[0] for row in rows], "item": [row[1] for row in rows], "history": many}
            self.keys = [[int(row[0]), 1 << 56 | int(row[1])] + [2 << 56 | int(one) for one in own or [MISSING]]
                         for row, own in zip(rows, many)]
            self.dense = np.zeros((len(rows), 0), np.float32)
            return
        else:
            self.labels = [int(int(row[2]) >= 4) for row in rows]
            self.cells = {"user": [int(row[0]) for row in rows], "item": [int(row[1]) for row in rows]}
            ids = [[int(cell) for cell in row[:2]] for row in rows]
        self.dense = np.array(dense, np.float64).reshape(len(rows), -1)
        self.keys = np.array([[f << 56 | number for f, number in enumerate(row)] for row in ids],
                             np.uint64)


# ---- who answers

def call(*words, stdin=None):
    done = subprocess.run(words, stdin=stdin, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


class Server:
    def __init__(self, lanyard, model, *options):
        self.process = subprocess.Popen([lanyard, "serve", model, *options, "--set",
                                         "serve.address=127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url.startswith("http://"):
            sys.exit("serve did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        if self.process.wait(60):
            sys.exit(f"serve ended with status {self.process.returncode}")

    def ask(self, path, body=None, kind="application/json"):
        request = urllib.request.Request(self.url + path, body, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def predict(self, rows):
        """By requests of CANDIDATES candidates; what all of them share is the context."""
        out = []
        for first in range(0, len(rows.lines), CANDIDATES):
            some = range(first, min(first + CANDIDATES, len(rows.lines)))
            shared = {n: c[first] for n, c in rows.cells.items() if all(c[i] == c[first] for i in some)}
            body = {"id": str(first), "context": shared, "candidates": [
                {n: c[i] for n, c in rows.cells.items() if n not in shared} for i in some]}
            answer = json.loads(self.ask("/predict", json.dumps(body).encode()))
            p = answer["probabilities"]
            first_label = [one[0] for one in p] if "labels" in answer else \
                [max(one) for one in p] if "classes" in answer else p
            if answer["id"] != str(first) or \
                    answer["ranking"] != sorted(range(len(p)), key=lambda i: -first_label[i]):
                sys.exit(f"serve: id or ranking of {answer}")
            out += p
        return np.array(out)

    def predict_binary(self, rows, kind):
        """kind: of the dense features, "<f4" or "<f8"."""
        head = np.array([0x5150594C if kind == "<f4" else 0x4450594C, len(rows.lines[:500]), rows.keys.shape[1], rows.dense.shape[1]], "<u4")
        body = head.tobytes() + rows.keys[:500].tobytes() + rows.dense[:500].astype(kind).tobytes()
        answer = self.ask("/predict.bin", body, "application/octet-stream")
        magic, count = (int(number) for number in np.frombuffer(answer, "<u4", 2))
        labels, at = (int(np.frombuffer(answer, "<u4", 1, 24)[0]), 32) if magic == 0x4D50594C else (1, 24)
        p = np.frombuffer(answer, "<f4", count * labels, at)
        ranking = np.frombuffer(answer, "<u4", count, at + 4 * count * labels)
        if list(ranking) != sorted(range(count), key=lambda i: -p[i * labels]):
            sys.exit("serve: the ranking of a binary answer")
        return p.reshape(count, labels) if labels > 1 else p


def compare(name, ours, theirs):
    if len(ours) != len(theirs):
        sys.exit(f"{name}: {len(ours)} probabilities, expected {len(theirs)}")
    worst = float(np.abs(np.asarray(ours, np.float64) - theirs).max())
    print(f"{name}: {len(ours)} probabilities, at most {worst:.2g} from eval's")
    if not worst <= BOUND:
        sys.exit(f"{name}: allowed is {BOUND}")


def log_loss(labels, p):
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return float(-np.mean(np.where(np.array(labels) == 1, np.log(p), np.log(1 - p))))


def same(lanyard, library, model, kind, path):
    os.environ["LANYARD_LIBRARY"] = library
    import lanyard as package
    rows, out = Rows(kind, path), os.path.join(os.path.dirname(model), "predictions.txt")
    files = ["--set", f"stream.files={path}", "--set", "stream.samples_max=0"]
    judged = json.loads(call(lanyard, "eval", model, "--json", "--predictions", out, *files))
    want = np.loadtxt(out)
    if want.max() - want.min() < 0.05:
        sys.exit(f"predictions from {want.min()} to {want.max()} show nothing")
    told = call(lanyard, "predict", model, "--threads", "3", *files).splitlines()
    predict = np.array([[float(cell) for cell in line.split("\t")] for line in told])
    predict = predict[:, 0] if want.ndim == 1 else predict
    compare("predict", predict, want)
    compare("numpy", read_model(model).predict(rows.dense, rows.keys), want)
    loaded = package.Model(model)
    texts = {name: ["|".join(one) if isinstance(one, list) else one for one in column]
             for name, column in rows.cells.items()}
    compare("Python, columns", loaded.predict(texts), want)
    compare("Python, lines", loaded.predict_lines("\n".join(rows.lines)), want)
    if isinstance(rows.keys, np.ndarray):
        compare("Python, keys", loaded.predict_keys(rows.dense, rows.keys), want)
    with Server(lanyard, model) as server:
        served = server.predict(rows)
        compare("serve", served, want)
        binary = 0
        if isinstance(rows.keys, np.ndarray):
            binary = len(want[:500])
            compare("serve, binary", server.predict_binary(rows, "<f8"), want[:500])
            if kind != "labels":  # 32 bits hold no time
                compare("serve, binary of 32 bits", server.predict_binary(rows, "<f4"), want[:500])
                binary *= 2
        asked = json.loads(server.ask("/metrics"))
        if asked["candidates"] != len(want) + binary or asked["refused"]:
            sys.exit(f"metrics count something else: {asked}")
    if kind == "graph":
        return same_classes(loaded, rows, served, judged)
    if want.ndim > 1:
        return same_labels(loaded, rows, served, judged)
    loss = log_loss(rows.labels, served)
    print(f"log loss of what was served: {loss:.6f}, eval's: {judged['logloss']:.6f}")
    if abs(loss - judged["logloss"]) > BOUND:
        sys.exit("they differ")


def same_classes(loaded, rows, served, judged):
    """Log loss of the class that it was, and how often it was the likeliest."""
    own = np.arange(len(rows.labels)), np.array(rows.labels)
    loss = float(-np.mean(np.log(np.clip(served[own], 1e-7, 1 - 1e-7))))
    accuracy = float(np.mean(served.argmax(1) == own[1]))
    if loaded.labels != [str(c) for c in range(served.shape[1])]:
        sys.exit(f"classes {loaded.labels}")
    print(f"served: log loss {loss:.6f}, accuracy {accuracy:.4f}; eval: {judged}")
    if np.abs(served.sum(1) - 1).max() > 1e-5 or abs(loss - judged["logloss"]) > BOUND or \
            abs(accuracy - judged["accuracy"]) > 1e-9 or not 0.75 < accuracy <= 1 or judged["auc"] < 0.85:
        sys.exit("they differ, or nothing was learnt")


def same_labels(loaded, rows, served, judged):
    """Log loss of every label, over the rows that have it."""
    if loaded.labels != list(judged["labels"]) or judged["logloss"] != judged["labels"][loaded.labels[0]]["logloss"]:
        sys.exit(f"labels {loaded.labels}, eval has {judged}")
    for l, name in enumerate(loaded.labels):
        there = [i for i, row in enumerate(rows.labels) if row[l] != ""]
        loss = log_loss([int(rows.labels[i][l]) for i in there], served[there, l])
        theirs = judged["labels"][name]
        print(f"{name}: log loss of what was served: {loss:.6f}, eval's: {theirs['logloss']:.6f}")
        if abs(loss - theirs["logloss"]) > BOUND or len(there) != theirs["samples"] or \
                not 0.65 < theirs["auc"] <= 1:
            sys.exit("they differ, or nothing was learnt")


# ---- samples of a graph

def graph(lanyard, folder):
    """What graph_samples.py draws are neighbours, each once; a seed is a file; lanyard learns from it."""
    tool, rng = os.path.join(TREE, "tools/graph_samples.py"), np.random.RandomState(5)
    edges, labels = (os.path.join(folder, name) for name in ("edges.csv", "labels.csv"))
    pairs = [(a, int(b)) for a in range(300) for b in rng.choice(100, 3) * 3 + a % 3 if a != b]
    with open(edges, "w", encoding="ascii") as file:
        file.write("# a graph\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    with open(labels, "w", encoding="ascii") as file:
        file.writelines(f"{node},{node % 3}\n" for node in range(298))
    near = {node: set() for node in range(300)}
    for a, b in pairs:
        near[a].add(b)
        near[b].add(a)
    texts, words = [], ("--fan-out", "5", "--second", "4", "--epochs", "12", "--seed")
    for out, seed in (("one", "1"), ("same", "1"), ("other", "2")):
        call(tool, edges, labels, "--out", os.path.join(folder, out), *words, seed)
        texts.append([open(os.path.join(folder, out, name), encoding="ascii").read()
                      for name in ("train.csv", "test.csv")])
    if texts[0] != texts[1] or texts[0] == texts[2]:
        sys.exit("a seed is not a file")
    rows = [[line.split(",") for line in text.splitlines()] for text in texts[0]]
    seen = [{int(row[1]) for row in part} for part in rows]
    if len(rows[0]) != 12 * 239 or len(rows[1]) != 59 or seen[0] & seen[1] or seen[0] | seen[1] != set(range(298)):
        sys.exit(f"{len(rows[0])} and {len(rows[1])} samples")
    for label, node, *cells in rows[0] + rows[1]:
        drawn = [[int(one) for one in cell.split("|") if one] for cell in cells]
        first = [one for cell in drawn[:5] for one in cell]
        good = int(label) == int(node) % 3 and len(first) == min(5, len(near[int(node)])) == len(set(first)) \
            and set(first) <= near[int(node)]
        for own, far in zip(drawn[:5], drawn[5:]):
            whose = near[own[0]] if own else set()
            good &= len(far) == min(4, len(whose)) == len(set(far)) and set(far) <= whose
        if not good:
            sys.exit(f"no neighbours: {label}, {node}, {cells}")
    config, out = os.path.join(folder, "run.json"), os.path.join(folder, "out")
    with open(config, "w", encoding="ascii") as file:
        json.dump({"include": "one/graph.json", "workers": 2, "batch": {"samples_per_worker": 32},
                   "cache": {"rows": 1000}, "model": {"embedding_dim": 8, "mlp": [16, 8]},
                   "optimizer": {"rows": {"learning_rate": 0.1}}}, file)
    call(lanyard, "up", config, "--out", out)
    judged = json.loads(call(lanyard, "eval", os.path.join(out, "model"), "--json", "--set",
                             "stream.files=" + os.path.join(folder, "one/test.csv")))
    print(judged)
    if judged["accuracy"] < 0.9:
        sys.exit("nothing was learnt")
    for text, says in (("1 2 3\n", "edges.csv:1: expected two whole numbers"), ("1,-2\n", "edges.csv:1: numbers are")):
        with open(edges, "w", encoding="ascii") as file:
            file.write(text)
        done = subprocess.run([tool, edges, labels, "--out", folder], capture_output=True, text=True, check=False)
        if done.returncode != 1 or says not in done.stderr:
            sys.exit(f"of {text!r} it says {done.stderr!r}")


# ---- published models

def iterations(folder):
    return sorted(int(name[5:]) for name in os.listdir(folder) if name.startswith("ckpt-"))


def await_iteration(server, wanted):
    """How many rows it has then."""
    for _ in range(600):
        model = json.loads(server.ask("/health"))["model"]
        if model["iteration"] == wanted:
            return model["rows"]
        time.sleep(0.05)
    sys.exit(f"serve: iteration {wanted} is not there: {server.ask('/health')}")


def tell_the_same_version(package, server, folder, number, body):
    """Iteration, samples and age, as the folder's manifest has them: HTTP, C by Python, and numpy's reader."""
    version = os.path.join(folder, f"ckpt-{number:012d}")
    with open(os.path.join(version, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    want = [number, manifest["samples"], manifest["trained_s"]]
    in_force, reader = package.Model(folder), package.read(version)
    told = {"Python": [in_force.iteration, in_force.samples, in_force.trained_s],
            "numpy": [reader.meta["iteration"], reader.meta["samples"], reader.trained_s]}
    for what, question in (("/predict", body), ("/health", None)):
        before = time.time()
        model = json.loads(server.ask(what, question))["model"]
        is_right = before - 0.01 <= model["age_s"] + want[2] <= time.time() + 0.01
        told[what] = [model["iteration"], model["samples"], want[2] if is_right else before - model["age_s"]]
    if any(one != want for one in told.values()) or abs(time.time() - in_force.age_s - want[2]) > 1:
        sys.exit(f"version {number}: the folder says {want}, others {told}")


def follow(lanyard, library, run):
    os.environ["LANYARD_LIBRARY"] = library
    import lanyard as package
    folder = os.path.join(run, "published")
    there = iterations(folder)
    versions = {number: package.Model(os.path.join(folder, f"ckpt-{number:012d}")) for number in there}
    final = package.Model(os.path.join(run, "model"))
    fields = final.columns[final.dense_count:]
    cells = {name: [str(k * (f + 1) % 40) for k in range(CANDIDATES)] for f, name in enumerate(fields)}
    want = {number: model.predict(cells) for number, model in versions.items()}
    if len(there) < 3 or np.abs(want[there[-1]] - final.predict(cells)).max() > 0:
        sys.exit(f"{there}: the last one is not the run's model")
    if np.abs(want[there[-1]] - want[there[-2]]).max() == 0:
        sys.exit("two versions say the same")
    body = json.dumps({"candidates": [{n: c[i] for n, c in cells.items()}
                                      for i in range(CANDIDATES)]}).encode()
    seen, wrong, rows, ends = set(), [], {}, threading.Event()
    with Server(lanyard, folder, "--set", "ps.storage=disk", "--set", "ps.folder=" + run) as server:
        def ask():
            while not ends.is_set():
                try:
                    answer = json.loads(server.ask("/predict", body))
                    number = answer["model"]["iteration"]
                    seen.add(number)
                    if np.abs(np.array(answer["probabilities"]) - want[number]).max() > BOUND:
                        wrong.append(number)
                except OSError as error:
                    wrong.append(error)
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        await_iteration(server, there[-1])
        call(lanyard, "rollback", folder)
        await_iteration(server, there[-2])
        call(lanyard, "pin", folder, "--version", str(there[0]))
        await_iteration(server, there[0])
        call(lanyard, "pin", folder, "--off")
        await_iteration(server, there[-1])
        for number in there[:-1]:  # forwards: over a copy of what answers, then by changes
            call(lanyard, "pin", folder, "--version", str(number))
            rows[number] = await_iteration(server, number)
            tell_the_same_version(package, server, folder, number, body)
        call(lanyard, "pin", folder, "--off")
        await_iteration(server, there[-1])
        ends.set()
        for thread in threads:
            thread.join()
    for number, count in rows.items():
        held = len(package.read(os.path.join(folder, f"ckpt-{number:012d}")).keys)
        if count != held:
            sys.exit(f"a server of version {number} has {count} rows, expected {held}")
    if wrong or not {there[0], there[-2], there[-1]} <= seen:
        sys.exit(f"of versions {there} answers came of {sorted(seen)}; wrong: {wrong[:3]}")
    print(f"versions {there}: answers of {len(seen)} of them, each its own, none lost")


def await_address(path, process):
    for _ in range(1200):
        with open(path, encoding="utf-8") as file:
            for line in file:
                if "published models at tcp://" in line:
                    return line.rsplit("tcp://", 1)[1].strip()
        if process.poll() is not None:
            break
        time.sleep(0.05)
    with open(path, encoding="utf-8") as file:
        sys.exit(f"no address of published models: {file.read()}")


def make_keys(lanyard, keys, elsewhere):
    """Keys of two boxes that may in a folder, that of a stranger elsewhere. Returns the options of a box."""
    places = {"hub": keys, "shop": keys, "stranger": elsewhere}
    for box, place in places.items():
        call(lanyard, "keygen", place, "--name", box)

    def secured(box):
        sets = [f"security.key={places[box]}/{box}.secret", f"security.allow={keys}",
                f"security.server_key={keys}/hub.public"]
        return [word for one in sets for word in ("--set", one)]
    return secured


def copy(lanyard, library, config, folder):
    """A run over CURVE, fed by a pipe; a server of another box, which is asked after the run is gone."""
    os.environ["LANYARD_LIBRARY"] = library
    import lanyard as package
    keys, log, rows = (os.path.join(folder, name) for name in ("keys", "log", "rows"))
    secured = make_keys(lanyard, keys, folder)
    make("criteo", rows, 4000, 0)
    run = os.path.join(folder, "run")
    with open(log, "w", encoding="utf-8") as output:
        up = subprocess.Popen(
            [lanyard, "up", config, "--out", run, *secured("hub"), "--set", "stream.files=-", "--set",
             "publish.every_s=1000", "--set", "checkpoint.every_iterations=10", "--set",
             "publish.address=127.0.0.1:0", "--set", "publish.guard.log_loss=0", "--set",
             "publish.guard.calibration=0"], stdin=subprocess.PIPE, stdout=output, stderr=output)
    address = await_address(log, up)
    with open(rows, "rb") as file:
        up.stdin.write(file.read())
    up.stdin.flush()
    done = subprocess.run([lanyard, "serve", os.path.join(folder, "none"), "--run", address,
                           *secured("stranger"), "--set", "timeouts.start_s=3"],
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 1 or "no model has come" not in done.stderr:
        sys.exit(f"a stranger was told: {done.stdout}{done.stderr}")
    here = os.path.join(folder, "copy")
    body = json.dumps({"candidates": [{"C1": f"{k:08x}", "I2": k} for k in range(CANDIDATES)]}).encode()
    cells = {"C1": [f"{k:08x}" for k in range(CANDIDATES)], "I2": list(range(CANDIDATES))}
    with Server(lanyard, here, "--run", address, *secured("shop")) as server:
        await_iteration(server, 30)  # 4,000 rows are 31 batches of 128
        up.kill()
        up.wait()
        up.stdin.close()
        time.sleep(0.5)
        answer = json.loads(server.ask("/predict", body))
        if answer["model"]["iteration"] != 30:
            sys.exit(f"the run is gone, and its model too: {answer}")
    want = package.Model(os.path.join(run, "published", "ckpt-000000000030")).predict(cells)
    compare("served from a copy", answer["probabilities"], want)
    with Server(lanyard, here) as server:  # nobody is asked any more
        compare("started again", json.loads(server.ask("/predict", body))["probabilities"], want)


# ---- columns of every kind

COLUMNS = [
    {"name": "y", "kind": "label"},
    {"name": "price", "kind": "dense", "transform": "log1p", "missing": "9.99"},
    {"name": "size", "kind": "dense"},
    {"name": "age", "kind": "dense", "transform": "bucket", "edges": [1, 2.5, 30]},
    {"name": "at", "kind": "ignore"},
    {"name": "hour", "kind": "categorical", "from": "at", "transform": "hour",
     "time_format": "%Y-%m-%d %H:%M:%S"},
    {"name": "day", "kind": "categorical", "from": "at", "transform": "weekday",
     "time_format": "%Y-%m-%d %H:%M:%S"},
    {"name": "unix", "kind": "dense", "transform": "hour"},
    {"name": "shop", "kind": "categorical", "missing": "none"},
    {"name": "code", "kind": "categorical", "id": "number"},
    {"name": "tags", "kind": "multi", "values_max": 3, "separator": "|"},
    {"name": "old", "kind": "categorical", "transform": "bucket", "edges": [3, 5]},
    {"name": "shop x code", "kind": "categorical", "from": ["shop", "code"]},
    {"name": "shop x code x hour", "kind": "categorical", "from": ["shop", "code", "hour"]},
]
CELLS = ["price", "size", "age", "at", "unix", "shop", "code", "tags", "old"]


def columns_cells(number):
    r = [(number * 7919 + k * 104729) * 2654435761 >> 7 & 0xFFFF for k in range(12)]
    time = 1_600_000_000 + r[0] * 5003
    return {"price": "" if r[1] % 5 == 0 else f"{r[1] % 700 / 7:.3f}", "size": f"{r[2] % 90 - 40}",
            "age": "" if r[3] % 6 == 0 else f"{r[3] % 50}",
            "at": "" if r[4] % 9 == 0 else str(np.datetime64(time, "s")).replace("T", " "),
            "unix": str(time), "shop": "" if r[5] % 4 == 0 else f"s{r[5] % 12}",
            "code": hex(r[6] % 30) if r[6] % 2 else str(r[6] % 30),
            # Some come again before there are as many others as count.
            "tags": "|".join(f"t{r[7] * k % 9 // 2}" for k in range(r[7] % 6)), "old": str(r[8] % 8)}


def columns(lanyard, folder):
    config, rows, asked, out = (os.path.join(folder, n) for n in ("config", "rows", "asked", "out"))
    for path, first, count in ((rows, 0, 4000), (asked, 10**5, 600)):
        with open(path, "w", encoding="ascii") as file:
            for n in range(first, first + count):
                cells = columns_cells(n)
                label = int((len(cells["tags"]) * 7 + int(cells["old"])) % 5 < 2)
                file.write(",".join([str(label)] + [cells[name] for name in CELLS]) + "\n")
    with open(config, "w", encoding="ascii") as file:
        json.dump({"workers": 2, "batch": {"samples_per_worker": 64},
                   "stream": {"format": "table", "negatives_keep": 0.4,
                              "table": {"header": False, "columns": COLUMNS}},
                   "model": {"embedding_dim": 8, "mlp": [16, 8], "pooling": "mean"},
                   "optimizer": {"rows": {"learning_rate": 0.1}}, "cache": {"rows": 5000}}, file)
    call(lanyard, "up", config, "--out", out, "--set", f"stream.files={rows}")
    model = os.path.join(out, "model")
    call(lanyard, "predict", model, "--out", os.path.join(folder, "p"), "--set", f"stream.files={asked}")
    cells = [columns_cells(n) for n in range(10**5, 10**5 + 600)]
    ours = read_model(model).predict_cells({n: [one[n] for one in cells] for n in CELLS})
    compare("numpy, columns of every kind", ours, np.loadtxt(os.path.join(folder, "p")))


def disk(lanyard, model):
    """The same answers, and the rows are not in the server's own memory."""
    own, answers = {}, {}
    body = json.dumps({"candidates": [{"C1": str(k), "C2": str(3 * k)} for k in range(CANDIDATES)]})
    for storage in ("memory", "disk"):
        with Server(lanyard, model, "--set", f"ps.storage={storage}") as server:
            answers[storage] = json.loads(server.ask("/predict", body.encode()))["probabilities"]
            rows = json.loads(server.ask("/health"))["model"]["rows"]
            with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
                own[storage] = 1024 * next(int(line.split()[1]) for line in file if line[:7] == "VmData:")
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        size = rows * json.load(file)["model"]["embedding_dim"] * 4
    print(f"{size} bytes of rows; {own['memory']} and {own['disk']} bytes of own memory")
    if answers["memory"] != answers["disk"]:
        sys.exit(f"answers differ: {answers}")
    if size < 4 << 20 or own["memory"] - own["disk"] < 0.8 * size:
        sys.exit("the rows are in memory, or are too few to tell")


def shared(out, path):
    """Items and histories have one table: rows by counting, look-ups of every column."""
    rows, model = Rows("history", path), read_model(os.path.join(out, "model"))
    want = {(field == 2 or field) << 56 | key & MISSING for own in rows.keys for key in own
            for field in [key >> 56] if key != 2 << 56 | MISSING}
    if set(model.keys.tolist()) != want:
        sys.exit(f"{len(model.keys)} rows, expected {len(want)}: {set(model.keys.tolist()) ^ want}")
    values, empty = [0, 0, 0], [0, 0, 0]
    for key in (key for own in rows.keys for key in own):
        values[key >> 56] += 1
        empty[key >> 56] += key & MISSING == MISSING
    seen = [[0, 0, 0], [0, 0, 0]]
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        for one in map(json.loads, file):
            for f, column in enumerate(one["columns"] if one["record"] == "columns" else []):
                seen[0][f] += column["values"]
                seen[1][f] += column["empty"]
    print(f"{len(want)} rows; values {values}, of these empty {empty}")
    if seen != [values, empty]:
        sys.exit(f"metrics have {seen}")


def main():
    command, *rest = sys.argv[1:]
    if command == "make":
        make(rest[0], rest[1], int(rest[2]), int(rest[3]))
    else:
        {"same": same, "follow": follow, "copy": copy, "columns": columns, "disk": disk,
         "shared": shared, "graph": graph}[command](*rest)


if __name__ == "__main__":
    main()
