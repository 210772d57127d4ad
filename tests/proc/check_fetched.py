#!/usr/bin/python3
"""check_fetched - a server that fetches the rows it lacks: does it say what the whole model says?

  check_fetched.py same LANYARD RUN ROWS          eval's probabilities, with a cache of a tenth of the model
  check_fetched.py away LANYARD LIBRARY RUN       who hands rows out is killed, and comes back
  check_fetched.py change LANYARD LIBRARY RUN     other versions come in force while it is asked
  check_fetched.py keys LANYARD RUN FOLDER        over CURVE, with a list of those who may

RUN has published several versions, of rows in the file train beside it. Status 1, and a line that says why, where something is wrong.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error

import numpy as np

sys.dont_write_bytecode = True
TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(TREE, "python"))
sys.path.insert(0, os.path.join(TREE, "tests/proc"))
from check_answers import (BOUND, CANDIDATES, Rows, Server, await_iteration, call,  # noqa: E402
                           compare, iterations, make_keys)
from check_served import await_that, free_port  # noqa: E402


def lender(lanyard, folder, port, *options):
    return Server(lanyard, folder, "--set", f"serve.hand_out=127.0.0.1:{port}", *options)


def fetching(lanyard, run, port, cache, *options):
    return Server(lanyard, os.path.join(run, "fetched"), "--run", f"127.0.0.1:{port}", "--set",
                  "serve.rows=fetched", "--set", f"serve.cache_bytes_max={cache}", "--set",
                  "serve.fetch_ms=20000", *options)


def counts(server):
    return json.loads(server.ask("/metrics"))


def answer(server, body):
    """The answer, or its status where it is none."""
    try:
        return json.loads(server.ask("/predict", json.dumps(body).encode()))
    except urllib.error.HTTPError as error:
        said = json.loads(error.read())["error"]
        if error.code != 503 or "rows are not here" not in said:
            sys.exit(f"status {error.code}: {said}")
        return 503


def same(lanyard, run, path):
    port, published = free_port(), os.path.join(run, "published")
    newest = os.path.join(published, f"ckpt-{iterations(published)[-1]:012d}")
    rows, out = Rows("criteo", path), os.path.join(run, "predictions.txt")
    call(lanyard, "eval", newest, "--json", "--predictions", out, "--set", f"stream.files={path}",
         "--set", "stream.samples_max=0", "--set", "stream.source=file")
    want = np.loadtxt(out)
    with lender(lanyard, published, port, "--set", "ps.storage=disk", "--set", "ps.folder=" + run) as whole:
        model = json.loads(whole.ask("/health"))["model"]["rows"]
        with open(os.path.join(newest, "config.json"), encoding="utf-8") as file:
            size = 4 * json.load(file)["model"]["embedding_dim"] * model
        with fetching(lanyard, run, port, max(size // 10, 65536)) as server:
            for turn in range(2):
                compare(f"fetched, turn {turn}", server.predict(rows), want)
            compare("fetched, binary", server.predict_binary(rows, "<f8"), want[:500])
            told = counts(server)
        print(f"{size} bytes of {model} rows; {told['rows']}")
        if told["refused"] or told["rows"]["failures"] or size < 10 * told["rows"]["cache_bytes"] or \
                not 0 < told["rows"]["cached"] < model / 10 or told["rows"]["asked"] < model or \
                told["rows"]["asked"] > told["rows"]["wanted"]:
            sys.exit("that was no cache of a tenth")
    if any(name.startswith("rows-") for _, _, names in os.walk(os.path.join(run, "fetched"))
           for name in names):
        sys.exit("rows were copied")
    alone = subprocess.run([lanyard, "serve", os.path.join(run, "fetched")], capture_output=True, text=True, timeout=60)
    if alone.returncode == 0 or "a version without its rows" not in alone.stderr:
        sys.exit(f"a server without rows and without --run: {alone.returncode}, {alone.stderr}")
    again = os.path.join(run, "fetched")  # with all rows it is another copy
    with lender(lanyard, published, port), Server(lanyard, again, "--run", f"127.0.0.1:{port}") as server:
        compare("copied after all", server.predict(rows), want)


def questions(library, folder, trained):
    """Versions, two questions of other keys, which were trained, and what each version says."""
    os.environ["LANYARD_LIBRARY"] = library
    import lanyard as package
    there = iterations(folder)
    versions = {number: package.Model(os.path.join(folder, f"ckpt-{number:012d}")) for number in there}
    rows, bodies, want = Rows("criteo", trained), [], []
    for turn in range(2):
        first = turn * 1000
        cells = {name: column[first:first + CANDIDATES] for name, column in rows.cells.items()}
        bodies.append({"candidates": [{n: c[i] for n, c in cells.items()} for i in range(CANDIDATES)]})
        want.append({number: model.predict(cells) for number, model in versions.items()})
    if len(there) < 3 or np.abs(want[0][there[-1]] - want[0][there[-2]]).max() < 100 * BOUND:
        sys.exit("versions that say the same show nothing")
    return there, bodies, want


def check(told, want):
    if told == 503 or "rows" in told["model"] or \
            np.abs(np.array(told["probabilities"]) - want[told["model"]["iteration"]]).max() > BOUND:
        sys.exit(f"not the model's: {told}")


def away(lanyard, library, run):
    port, published = free_port(), os.path.join(run, "published")
    there, bodies, want = questions(library, published, os.path.join(os.path.dirname(run), "train"))
    whole = lender(lanyard, published, port)
    with fetching(lanyard, run, port, 1 << 20) as server:
        check(answer(server, bodies[0]), want[0])
        whole.process.send_signal(signal.SIGKILL)
        whole.process.wait()
        for _ in range(3):
            check(answer(server, bodies[0]), want[0])  # its rows are here
            if answer(server, bodies[1]) != 503:
                sys.exit("rows came from nowhere")
        mixed = {"candidates": bodies[0]["candidates"][:1] + bodies[1]["candidates"][1:]}
        if answer(server, mixed) != 503:
            sys.exit("rows of some candidates came from nowhere")
        if counts(server)["refused"] != 4:
            sys.exit(f"refused: {counts(server)}")
        with lender(lanyard, published, port):
            await_that("rows again", 60, lambda: answer(server, bodies[1]) != 503)
            check(answer(server, bodies[1]), want[1])
            before = counts(server)["rows"]
            check(answer(server, bodies[0]), want[0])
            if counts(server)["rows"]["asked"] != before["asked"]:
                sys.exit("rows that were here were asked for again")
    print(f"away and back: {before}")


def change(lanyard, library, run):
    port, published = free_port(), os.path.join(run, "published")
    there, bodies, want = questions(library, published, os.path.join(os.path.dirname(run), "train"))
    seen, wrong, mixed, ends = set(), [], [], threading.Event()
    with lender(lanyard, published, port), fetching(lanyard, run, port, 65536) as server:
        def ask(turn):
            while not ends.is_set():
                told = answer(server, bodies[turn % 2])
                if told == 503:
                    wrong.append(told)
                    continue
                number = told["model"]["iteration"]
                seen.add(number)
                if "rows" in told["model"]:
                    mixed.append(told["model"])
                elif np.abs(np.array(told["probabilities"]) - want[turn % 2][number]).max() > BOUND:
                    wrong.append(number)
        threads = [threading.Thread(target=ask, args=(turn,)) for turn in range(4)]
        for thread in threads:
            thread.start()
        for number in there[:-1] + there[::-1]:  # forwards by changes, and back
            call(lanyard, "pin", published, "--version", str(number))
            await_iteration(server, number)
        call(lanyard, "pin", published, "--off")
        await_iteration(server, there[-1])
        ends.set()
        for thread in threads:
            thread.join()
        told = counts(server)["rows"]
    # Of two changes within one look some answers may be of two versions, and say so.
    if wrong or not set(there) <= seen or any(not one["rows"][0] < one["rows"][1] for one in mixed):
        sys.exit(f"of versions {there} answers came of {sorted(seen)}; wrong: {wrong[:3]}; {mixed[:3]}")
    if told["fetched"] >= told["asked"]:
        sys.exit(f"rows that had not changed came again: {told}")
    print(f"versions {there}, each its own; {len(mixed)} answers of two; {told}")


def keys(lanyard, run, folder):
    where, published, port = os.path.join(folder, "keys"), os.path.join(run, "published"), free_port()
    secured = make_keys(lanyard, where, folder)
    body = {"candidates": [{"C1": "0000000a", "I2": 3}]}
    with lender(lanyard, published, port, *secured("hub")) as whole:
        want = answer(whole, body)["probabilities"]
        with fetching(lanyard, run, port, 65536, *secured("shop")) as server:
            compare("over CURVE", answer(server, body)["probabilities"], np.array(want))
        # A stranger with a copy of the dense part is not given rows either.
        for who in (secured("stranger"), []):
            done = subprocess.run([lanyard, "serve", os.path.join(folder, "none"), "--run", f"127.0.0.1:{port}",
                                   "--set", "serve.rows=fetched", *who, "--set", "timeouts.start_s=3"],
                                  capture_output=True, text=True, timeout=60, check=False)
            if done.returncode != 1 or "no model has come" not in done.stderr:
                sys.exit(f"a stranger was told: {done.stdout}{done.stderr}")
        with fetching(lanyard, run, port, 65536, *secured("stranger"), "--set",
                      "serve.fetch_ms=1000") as server:
            if answer(server, body) != 503:
                sys.exit("a stranger was given rows")


def main():
    command, *rest = sys.argv[1:]
    {"same": same, "away": away, "change": change, "keys": keys}[command](*rest)


if __name__ == "__main__":
    main()
