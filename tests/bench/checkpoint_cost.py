#!/usr/bin/env python3
"""checkpoint_cost - what checkpoints take from training, by the size of a shard's table.

  tests/bench/checkpoint_cost.py [--program build/lanyard] [--sizes 64,256,1024,2048] [--rounds 1,1,1,2]
                                 [--minute 60] [--folder DIR] [--document docs/RELIABILITY.md]

For every size a run makes the rows, from samples that are spread evenly over the ids, and a checkpoint of
them. Two runs in turn go on from there with samples as users send them: one without checkpoints, one with
an incremental one half-way through the minute and a full one after it. Both train the same samples, so
their times for the same iterations are compared. Everything stands in a temporary folder of DIR (about
three times the largest table), which is removed at the end.
"""
import argparse
import bisect
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

IDS_AT_SCALE_1 = 33762577  # of the criteo shape
DIM, ROW_BYTES = 256, 2 * 256 * 4  # values and Adagrad's accumulators
SPARE_IDS = 1.2  # ids per row wanted: few rows are left to be made while training is measured
SAMPLES_PER_ID = 0.3  # evenly spread ones, that make rows of so many ids
SETTLE_S = 5  # caches, after a start
RECOVER_S = 5  # after a checkpoint is complete: what it still slows down
LIMIT_S = 600
BEGIN, END = "<!-- checkpoint_cost: begin -->", "<!-- checkpoint_cost: end -->"


def config_of(size_mb):
    rows = size_mb * 1000000 // ROW_BYTES
    return {
        "workers": 2, "batch": {"samples_per_worker": 256},
        "stream": {"format": "synthetic",
                   "synthetic": {"scale": rows * SPARE_IDS / IDS_AT_SCALE_1, "zipf": 1.05}},
        "model": {"name": "wdl", "embedding_dim": DIM, "deep_input": "all", "mlp": [64]},
        "cache": {"rows": max(8000, rows * 8 // 100)},
        "dispatch": {"policy": "esd", "alpha": 0, "measure_compute": False},
        "checkpoint": {"full_every": 2, "keep": 1},
    }


def read_lines(path):
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().split("\n")
    except OSError:
        return []


def children_of(pid):
    words = " ".join(read_lines(f"/proc/{pid}/task/{pid}/children")).split()
    return [int(word) for word in words]


def command_of(pid):
    """Its words; [""] once it has ended."""
    return "\n".join(read_lines(f"/proc/{pid}/cmdline")).split("\0")


def usage_of(pid):
    """(MB of page faults, processor seconds, MB in memory). Looking at the pages themselves would disturb more
    than the checkpoint does."""
    fields = " ".join(read_lines(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if len(fields) < 22:
        return 0.0, 0.0, 0.0
    page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return int(fields[7]) * page_mb, seconds, int(fields[21]) * page_mb


class Run:
    """One `lanyard up`, watched by its metrics."""

    def __init__(self, program, folder, config, sets):
        self.folder, self.at, self.rest = folder, 0, b""
        self.iterations, self.checkpoints = [], []  # records
        self.shard, self.memory = 0, {"shard": 0.0, "changed": 0.0, "copy": 0.0}  # peaks
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        command = [program, "up", path, "--out", folder]
        for key, value in sets.items():
            command += ["--set", f"{key}={value}"]
        if os.path.isdir(os.path.join(folder, "checkpoints")):
            command.append("--resume")
        with open(os.path.join(folder, "log"), "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Its end, without the model that it would save: its processes go with it."""
        members = children_of(self.process.pid)
        self.process.kill()
        self.process.wait()
        while any(command_of(pid) != [""] for pid in members):
            time.sleep(0.01)

    def poll(self):
        time.sleep(0.2)
        try:
            with open(os.path.join(self.folder, "metrics.jsonl"), "rb") as file:
                file.seek(self.at)
                block = file.read()
        except OSError:
            return
        self.at += len(block)
        *lines, self.rest = (self.rest + block).split(b"\n")
        for line in lines:
            record = json.loads(line)
            if record["record"] == "iteration":
                self.iterations.append(record)
            elif record["record"] == "checkpoint":
                self.checkpoints.append(record)

    def go_on(self, until):
        """Trains until the condition holds."""
        limit = time.monotonic() + LIMIT_S
        while not until():
            if self.process.poll() is not None or time.monotonic() > limit:
                log = "\n".join(read_lines(os.path.join(self.folder, "log"))[-20:])
                raise RuntimeError(f"a run ended, or stands still:\n{log}")
            self.poll()

    def train_for(self, seconds):
        end = time.monotonic() + seconds
        self.go_on(lambda: time.monotonic() >= end)

    def watch_copy(self, faults_before_mb):
        """What the copy has taken, in processor seconds; 0 where there is none."""
        copy_s = 0.0
        for copy in children_of(self.shard):
            faults_mb, _, shard_mb = usage_of(self.shard)
            copy_mb, copy_s, _ = usage_of(copy)
            for key, value in (("shard", shard_mb), ("changed", faults_mb - faults_before_mb), ("copy", copy_mb)):
                self.memory[key] = max(self.memory[key], value)
        return copy_s

    def make_checkpoint(self):
        """Asks for one and trains until it is written; its record, with what the copy took."""
        count, copy_s = len(self.checkpoints), 0.0
        self.shard = self.shard or next(pid for pid in children_of(self.process.pid)
                                        if command_of(pid)[1:2] == ["ps"])
        before_mb = usage_of(self.shard)[0]
        self.process.send_signal(signal.SIGUSR1)

        def is_written():
            nonlocal copy_s
            copy_s = max(copy_s, self.watch_copy(before_mb))
            return len(self.checkpoints) > count

        self.go_on(is_written)
        if not self.checkpoints[-1]["complete"]:
            raise RuntimeError("a checkpoint could not be written")
        self.checkpoints[-1]["copy_s"] = copy_s


def window(record):
    """From the cut to the end of writing, in the time of the metrics."""
    end = record["time_s"]
    return end - record["write_s"] - (record["drain_ms"] + record["wait_ms"]) * 1e-3, end


def rate(iterations, first_s, last_s):
    """Samples per second between the first and the last iteration that ended in the span."""
    inside = [one for one in iterations if first_s <= one["time_s"] <= last_s]
    if len(inside) < 2:
        return 0.0
    return sum(one["samples"] for one in inside[1:]) / (inside[-1]["time_s"] - inside[0]["time_s"])


def seconds_of(run, first, last):
    return run.iterations[last]["time_s"] - run.iterations[first]["time_s"]


def around(run, record):
    """The last iteration before the cut, and the last that the checkpoint may have slowed down."""
    begin, end = window(record)
    times = [one["time_s"] for one in run.iterations]
    return bisect.bisect_left(times, begin) - 1, bisect.bisect_right(times, end + RECOVER_S) - 1


def lost_s(run, record):
    """How much longer the iterations took than at the rate before them."""
    first, last = around(run, record)
    begin = window(record)[0]
    samples = sum(one["samples"] for one in run.iterations[first + 1:last + 1])
    return seconds_of(run, first, last) - samples / rate(run.iterations, begin - 20, begin)


def lost_against_s(without, run, record):
    """How much longer the iterations took than without the checkpoint. How fast the machine was in either
    run is judged by the other iterations, which no checkpoint disturbs."""
    first, last = around(run, record)
    begin, end = both_measured(without, run)
    last = min(last, end)
    calm = seconds_of(run, begin, first) + seconds_of(run, last, end)
    calm_without = seconds_of(without, begin, first) + seconds_of(without, last, end)
    return seconds_of(run, first, last) - seconds_of(without, first, last) * calm / calm_without


def prepare(program, folder, config):
    """Makes the rows."""
    scale = config["stream"]["synthetic"]["scale"]
    samples = int(scale * IDS_AT_SCALE_1 * SAMPLES_PER_ID)
    with Run(program, folder, config,
             {"stream.samples_max": samples, "stream.synthetic.zipf": 0, "stream.synthetic.clusters": 0,
              "dispatch.policy": "random", "checkpoint.at_end": "true"}) as run:
        run.go_on(lambda: run.process.poll() == 0)
    shutil.rmtree(os.path.join(folder, "model"), ignore_errors=True)


def go_on_from(program, base, folder, config):
    """A run that resumes from the rows in base, which stay as they are."""
    shutil.copytree(os.path.join(base, "checkpoints"), os.path.join(folder, "checkpoints"),
                    copy_function=os.link)
    return Run(program, folder, config, {})


def train(program, base, folder, config, minute_s, with_checkpoints):
    with go_on_from(program, base, folder, config) as run:
        run.go_on(lambda: run.iterations)
        run.train_for(SETTLE_S)
        run.measured_from = len(run.iterations)
        end = time.monotonic() + minute_s
        if with_checkpoints:
            run.train_for(minute_s / 2)
            run.make_checkpoint()
        run.go_on(lambda: time.monotonic() >= end)
        run.measured_to = len(run.iterations)
        if with_checkpoints:
            run.make_checkpoint()
            run.train_for(RECOVER_S + 1)
        run.poll()
    shutil.rmtree(folder, ignore_errors=True)
    return run


def both_measured(without, run):
    return (max(without.measured_from, run.measured_from),
            min(without.measured_to, run.measured_to) - 1)


def compare(without, run):
    """Share of the throughput that the minute with a checkpoint lacks, over the iterations of both."""
    first, last = both_measured(without, run)
    return 1 - seconds_of(without, first, last) / seconds_of(run, first, last)


def measure(program, folder, size_mb, rounds, minute_s):
    config, base = config_of(size_mb), os.path.join(folder, "base")
    prepare(program, base, config)
    losses, lost, runs = [], [], []
    for turn in range(rounds):
        pair = {}
        for with_checkpoints in (turn % 2 == 1, turn % 2 == 0):
            pair[with_checkpoints] = train(program, base, os.path.join(folder, "run"), config,
                                           minute_s, with_checkpoints)
        losses.append(compare(pair[False], pair[True]))
        lost.append(lost_against_s(pair[False], pair[True], pair[True].checkpoints[0]))
        runs.append(pair[True])
    shutil.rmtree(base)
    table_mb = statistics.median(run.checkpoints[-1]["bytes"] for run in runs) / 1e6
    return {"table_mb": table_mb, "losses": losses, "lost": lost, "runs": runs, "minute_s": minute_s}


def cell(values, form):
    """Median, and the worst where there are several."""
    worst = f" / {max(values):{form}}" if len(values) > 1 else ""
    return f"{statistics.median(values):{form}}{worst}"


def row_of(result, is_full):
    runs, minute_s = result["runs"], result["minute_s"]
    records = [(run, run.checkpoints[-1 if is_full else 0]) for run in runs]
    assert all(bool(record["base"]) != is_full for _, record in records)
    lost = [lost_s(run, record) for run, record in records] if is_full else result["lost"]
    period_s = 3600 if is_full else minute_s
    before = [rate(run.iterations, window(one)[0] - 20, window(one)[0]) for run, one in records]
    during = [rate(run.iterations, *window(one)) for run, one in records]
    compared = "" if is_full else f"{100 * statistics.mean(result['losses']):.2f}"
    return (f"| {result['table_mb']:.0f} | {'all rows' if is_full else 'changes'} "
            f"| {statistics.median(one['bytes'] for _, one in records) / 1e6:.0f} "
            f"| {cell([one['drain_ms'] for _, one in records], '.0f')} "
            f"| {cell([one['pause_ms'] for _, one in records], '.1f')} "
            f"| {cell([one['write_s'] for _, one in records], '.1f')} "
            f"| {statistics.median(one['copy_s'] for _, one in records):.1f} "
            f"| {statistics.median(before):.0f} | {statistics.median(during):.0f} "
            f"| {statistics.median(lost):.2f} | {100 * statistics.median(lost) / period_s:.2f} "
            f"| {compared} |")


def table_of(results):
    lines = ["| table, MB | checkpoint | MB written | drain, ms | pause, ms | written in, s | processor, s | samples/s before "
             "| meanwhile | lost, s | lost, % | compared, % |",
             "|---" * 12 + "|"]
    for result in results:
        lines += [row_of(result, False), row_of(result, True)]
    lines += ["", "| table, MB | shard, MB | changed meanwhile, MB | copy's own, MB |", "|---|---|---|---|"]
    for result in results:
        peaks = [max(run.memory[key] for run in result["runs"]) for key in ("shard", "changed", "copy")]
        lines.append(f"| {result['table_mb']:.0f} | " + " | ".join(f"{one:.0f}" for one in peaks) + " |")
    return "\n".join(lines)


def write_document(path, table):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    head, rest = text.split(BEGIN)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{head}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/lanyard")
    parser.add_argument("--sizes", default="64,256,1024,2048", help="of the table, in MB")
    parser.add_argument("--rounds", default="1,1,1,2", help="of each size: a minute with and one without")
    parser.add_argument("--minute", type=float, default=60, help="seconds from checkpoint to checkpoint")
    parser.add_argument("--folder", default=None, help="where the temporary folder is made")
    parser.add_argument("--document")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    rounds = [int(one) for one in arguments.rounds.split(",")]
    if len(rounds) == 1:
        rounds *= len(sizes)
    results = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="lanyard-checkpoint-", dir=arguments.folder) as folder:
        for size, number in zip(sizes, rounds, strict=True):
            results.append(measure(program, folder, size, number, arguments.minute))
            print(f"{size} MB: {100 * statistics.mean(results[-1]['losses']):.2f}% lost", flush=True)
    table = table_of(results)
    print(table)
    if arguments.document:
        write_document(arguments.document, table)


if __name__ == "__main__":
    sys.exit(main())
