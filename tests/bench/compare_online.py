#!/usr/bin/python3
"""compare_online - speed against quality, beside Vowpal Wabbit, on the same rows and cores.

  tests/bench/compare_online.py build/lanyard [--file ROWS] [--rows 100000] [--turns 3] [--document]
  tests/bench/compare_online.py --check

Everybody reads the rows once, in order, and predicts each before learning from it; log loss is
over all of these predictions, samples/s over the whole process, reading and writing included.
Criteo rows (--file: unpacked, or .zst). Vowpal Wabbit comes from PyPI into build/vw, in its own text
format, which is written before its clock starts; with its defaults, the best that were found of
its optimizers and rates, and products of four fields' words (-q). Lanyard: configs/criteo.json with
one worker that can hold all rows, at several sizes of a batch. In turn, medians; the table's last
column says who is both faster and better. Without PyPI it is skipped, with the reason.
--document: into docs/results, online.md's table and online.svg. --check: whether that picture is of
that table; 1 if it is not.
"""
import argparse
import datetime
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from svg import line_at, picture, spread, text_at

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "criteo_kaggle_100k.tsv"
PAGE, PICTURE = (os.path.join(HERE, "../../docs/results", name) for name in ("online.md", "online.svg"))
BEGIN, END = "<!-- begin: written by tests/bench/compare_online.py -->\n", "<!-- end of online -->"
BITS = ["-b", "22", "--loss_function", "logistic", "--no_stdin"]
LEARNERS = {"vw, its defaults": [], "vw, l 0.3, power_t 0.3": ["-l", "0.3", "--power_t", "0.3"],
            "vw, coin": ["--coin"], "vw, ftrl, alpha 0.05": ["--ftrl", "--ftrl_alpha", "0.05"],
            "vw, pairs of 4 fields": ["-l", "0.1"] + [f"-q{a}{b}" for a in "ABC" for b in "BCD" if a < b]}
VW = os.path.join(HERE, "../../build/vw")
VW_RUN = ("import sys, vowpalwabbit; w = vowpalwabbit.Workspace(arg_list=sys.argv[1:], "
          "enable_logging=True); w.finish(); print('\\n'.join(w.get_log()))")
LANYARD = {f"lanyard, batch {batch}": batch for batch in (64, 256, 1024)}


def find_rows(path, count, folder):
    """The first count rows, unpacked."""
    rows = os.path.join(folder, "rows.tsv")
    source = ["zstd", "-dcq", path] if path.endswith(".zst") else ["cat", path]
    with open(rows, "wb") as file:
        reader = subprocess.Popen(source, stdout=subprocess.PIPE)
        subprocess.run(["head", "-n", str(count)], stdin=reader.stdout, stdout=file, check=True)
        reader.stdout.close()
        reader.wait()
    return rows


def install_vw(where):
    """A Python with vowpalwabbit in it, or a reason why there is none."""
    python = os.path.join(where, "bin", "python")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", where], check=True)
    probe = [python, "-c", "import vowpalwabbit"]
    if subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return python, None
    run = subprocess.run([python, "-m", "pip", "install", "-q", "vowpalwabbit"], check=False,
                         stderr=subprocess.PIPE, text=True)
    return python, run.stderr.strip().splitlines()[-1] if run.returncode else None


def write_vw(rows, to):
    """Dense features are log(1 + x) as numbers, ids as words; a namespace per categorical field."""
    with open(rows, encoding="utf-8") as source, open(to, "w", encoding="utf-8") as file:
        for line in source:
            cells = line.rstrip("\n").split("\t")
            dense = " ".join(f"{i}:{math.log1p(max(int(x), 0)):.4f}"
                             for i, x in enumerate(cells[1:14]) if x)
            ids = " ".join(f"|{chr(65 + i)} {x or 'none'}" for i, x in enumerate(cells[14:40]))
            file.write(f"{'1' if cells[0] == '1' else '-1'} |a {dense} {ids}\n")


def run_vw(python, options, data):
    start = time.monotonic()
    run = subprocess.run([python, "-c", VW_RUN, *BITS, *options, "-d", data], check=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seconds = time.monotonic() - start
    found = re.findall(r"average loss = ([0-9.]+)", run.stdout)
    if not found:
        sys.exit("vowpal wabbit says no average loss:\n" + run.stdout[-800:])
    return seconds, float(found[-1])


def run_lanyard(program, batch, rows):
    with tempfile.TemporaryDirectory() as out:
        start = time.monotonic()
        subprocess.run([program, "up", os.path.join(HERE, "../../configs/criteo.json"), "--out", out,
                        "--set", "stream.files=" + rows, "--set", "workers=1", "--set",
                        f"batch.samples_per_worker={batch}", "--set", "cache.ratio=1", "--set",
                        "log.level=warn"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - start
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            return seconds, json.load(file)["logloss"]


def points_of(results, count):
    """Name -> (samples/s, log loss), as the table has them."""
    return {name: (round(count / statistics.median(s for s, _ in runs)), round(runs[0][1], 4))
            for name, runs in results.items()}


def points_in(page):
    """The same, from a page."""
    rows = (line.strip("| ").split(" | ") for line in page.split("\n") if line.startswith("| "))
    return {cells[0]: (int(cells[1]), float(cells[2])) for cells in rows if cells[1].isdigit()}


def table(points):
    lines = ["| | samples/s | log loss | both faster and better |", "|---|---|---|---|"]
    for name, (rate, loss) in sorted(points.items(), key=lambda item: item[1][1]):
        above = [other for other, (r, l) in points.items() if r > rate and l < loss]
        lines.append(f"| {name} | {rate} | {loss:.4f} | {'; '.join(above) or 'nobody'} |")
    return "\n".join(lines)


def axis(values, step):
    """Multiples of step around the values."""
    first, last = math.floor(min(values) / step), math.ceil(max(values) / step)
    return [i * step for i in range(first, last + 1)]


def draw(unordered):
    """A point for each: to the right is faster (a scale of powers), below is better."""
    width, left, right, top, height = 760, 60, 230, 50, 260
    points = dict(sorted(unordered.items()))
    losses = axis([loss for _, loss in points.values()], 0.01)
    rates = axis([math.log10(rate) for rate, _ in points.values()], 0.5)
    x_of = lambda rate: left + (width - left - right) * (math.log10(rate) - rates[0]) / (rates[-1] - rates[0])
    y_of = lambda loss: top + height * (losses[-1] - loss) / (losses[-1] - losses[0])
    out = [text_at(12, 22, "Log loss of predictions before training, and samples/s", ' font-size="15"')]
    for loss in losses:
        out += [line_at(left, y_of(loss), width - right, y_of(loss), "#dddddd"),
                text_at(left - 6, y_of(loss) + 4, f"{loss:.2f}", ' text-anchor="end" fill="#555555"')]
    for rate in (10 ** power for power in rates):
        out += [line_at(x_of(rate), top, x_of(rate), top + height, "#dddddd"),
                text_at(x_of(rate), top + height + 18, f"{rate:,.0f}", ' text-anchor="middle" fill="#555555"')]
    names = list(points)
    for name, y in zip(names, spread([y_of(points[name][1]) for name in names], 15)):
        rate, loss = points[name]
        colour = "#1f6fb4" if name in LANYARD else "#7d5ba6"
        out += [f'<circle cx="{x_of(rate):.1f}" cy="{y_of(loss):.1f}" r="5" fill="{colour}"/>',
                line_at(x_of(rate) + 6, y_of(loss), width - right + 6, y, colour, ' stroke-dasharray="2 3"'),
                text_at(width - right + 10, y + 4, name, f' fill="{colour}"')]
    return picture(width, top + height + 30, out)


def check():
    with open(PAGE, encoding="utf-8") as page, open(PICTURE, encoding="utf-8") as file:
        same = file.read() == draw(points_in(page.read()))
    print("docs/results/online.svg is", "up to date" if same else "not what online.md says")
    return 0 if same else 1


def write_documents(text, points):
    with open(PAGE, encoding="utf-8") as file:
        before, begin, rest = file.read().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE} lacks the lines {BEGIN.strip()} and {END}")
    for path, content in ((PAGE, before + BEGIN + text + "\n" + END + after), (PICTURE, draw(points))):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?")
    parser.add_argument("--file", default=os.path.join(
        os.environ.get("LANYARD_DATA", "../shared/data"), NAME))
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--document", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(check())
    if not arguments.program:
        parser.error("a program is needed")
    path = next((p for p in (arguments.file, arguments.file + ".zst") if os.path.exists(p)), None)
    if not path:
        print(f"skipped: {arguments.file} is not here (set LANYARD_DATA, or --file ROWS)")
        return
    python, reason = install_vw(VW)
    if reason:
        print("skipped: vowpalwabbit does not install:", reason)
        return
    folder, results = tempfile.mkdtemp(), {}
    try:
        rows, data = find_rows(path, arguments.rows, folder), os.path.join(folder, "rows.vw")
        write_vw(rows, data)
        with open(rows, "rb") as file:
            count = sum(1 for _ in file)
        for _ in range(arguments.turns):
            for name, options in LEARNERS.items():
                results.setdefault(name, []).append(run_vw(python, options, data))
            for name, batch in LANYARD.items():
                results.setdefault(name, []).append(run_lanyard(arguments.program, batch, rows))
    finally:
        shutil.rmtree(folder)
    points = points_of(results, count)
    text = (f"{table(points)}\n\n{datetime.date.today()}, {count} rows, {arguments.turns} turns, {os.cpu_count()} "
            f"cores, load {os.getloadavg()[0]:.1f}.")
    print(text)
    if arguments.document:
        write_documents(text, points)


if __name__ == "__main__":
    main()
