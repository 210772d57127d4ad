"""rivals - what one would use instead, on the events of a proof: PyTorch, Vowpal Wabbit, yesterday's model.

Each gives the predictions of today's events, made before it learnt from them.
"""
import json
import math
import os
import subprocess
import sys
import time

import numpy as np

import boxes
import compare_online
import events

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
import read_model  # noqa: E402

SHARDS = os.path.join(HERE, "shards.py")
TORCH_BYTES = 220e6  # what a process takes before it has any row


class NotRun(Exception):
    """Why somebody could not be run."""


def number_ids(folder, model, today):
    """model: of tools/read_model.py. Ids as numbers, and where rows are known, their place in the model."""
    columns = {one["name"]: one for one in model.config["stream"]["table"]["columns"]}
    ids, keys = [], []
    for field, name in enumerate(today.names):
        distinct, own = np.unique(today.columns[name], return_inverse=True)
        ids.append(own + len(keys))
        keys += [field << 56 | read_model._id_of(columns[name], today.texts[name](one)) for one in distinct]
    keys = np.array(keys, np.uint64)
    np.savez(os.path.join(folder, "events.npz"), ids=np.array(ids).T, keys=keys, labels=today.labels)
    found = model.lookup(keys)
    np.save(os.path.join(folder, "known.npy"), found >= 0)
    np.save(os.path.join(folder, "values.npy"), model.values[found])
    np.save(os.path.join(folder, "squares.npy"), model.state[found])
    np.savez(os.path.join(folder, "dense.npz"), **model.dense)


def run_torch(options, today, threads, batch, batches=0):
    """All boxes, none of which goes away; with more memory where a box has too little for it."""
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise NotRun("python3-torch is not installed (tools/setup prove)")
    folder = os.path.join(options.work, "torch")
    if not os.path.exists(folder):
        os.makedirs(folder)
        number_ids(folder, read_model.read_model(options.model), today)
    ranks = len(options.boxes)
    memory = max(options.memory * 1e6, TORCH_BYTES + 1.3 * options.table_bytes / ranks)
    for box in options.boxes:
        options.limits.limit(box, int(memory))
        boxes.lan("disk", box, folder)
    before, master = boxes.counted(options.boxes), boxes.address(options.boxes[0])
    logs = [os.path.join(options.out, "logs", "torch-" + box) for box in options.boxes]
    environment = {"GLOO_SOCKET_IFNAME": "eth0", "PYTHONDONTWRITEBYTECODE": "1"}
    processes = [boxes.Process(options.limits, box, ["/usr/bin/python3", SHARDS, folder, str(rank), str(ranks), master,
                                                str(threads), str(batch), str(batches)],
                               log, again=False, environment=environment)
                 for rank, (box, log) in enumerate(zip(options.boxes, logs))]
    used = await_all(options, processes, 60 + options.seconds)
    for box in options.boxes:
        options.limits.limit(box, options.memory * 1000000)
    if any(one.status != 0 for one in processes):
        raise NotRun("a process ended with status %s: %s" % ([one.status for one in processes],
                                                             processes[0].said(300).strip()))
    said = json.loads(processes[0].said().strip().splitlines()[-1])
    parts = [np.load(os.path.join(folder, "predictions-%d.npy" % rank)) for rank in range(ranks)]
    predictions = np.stack(parts, 1).reshape(-1)
    after = boxes.counted(options.boxes)
    return {"events": len(predictions), "predictions": predictions.tolist(), "seconds": said["seconds"],
            "samples_per_s": len(predictions) / said["seconds"], "memory": used, "limit": memory,
            "bytes": sum(after[box] - before[box] for box in after)}


def await_all(options, processes, seconds):
    """Until all have ended; the most memory that each box used."""
    end, used = time.monotonic() + seconds, dict.fromkeys(options.boxes, 0)
    try:
        while any(one.process for one in processes) and time.monotonic() < end:
            for one in processes:
                one.step()
                used[one.box] = max(used[one.box], options.limits.used(one.box))
            if any(one.status not in (None, 0) for one in processes):
                break
            time.sleep(0.1)
    finally:
        for one in processes:
            one.end(0.1)
    return used


def run_vw(options, before, today):
    """In the first box, to which the events of the others would have to be sent."""
    python = os.path.join(compare_online.VW, "bin", "python")
    if subprocess.run([python, "-c", "import vowpalwabbit"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise NotRun("vowpalwabbit did not install from PyPI")
    folder = os.path.join(options.work, "vw")
    os.makedirs(folder)
    box, paths = options.boxes[0], {}
    for name, some in (("before", before), ("today", today)):
        paths[name] = os.path.join(folder, name)
        events.write_vw(paths[name], some)
    boxes.lan("disk", box, folder)
    base = [python, "-c", compare_online.VW_RUN] + compare_online.BITS + ["-l", "0.1"]
    model, out = os.path.join(folder, "model"), os.path.join(folder, "predictions")
    log = os.path.join(options.out, "logs", "vw")
    for more in (["-d", paths["before"], "-f", model],
                 ["-d", paths["today"], "-i", model, "-p", out, "--link", "logistic"]):
        begin = time.monotonic()
        process = boxes.Process(options.limits, box, base + more + ["--save_resume"], log, again=False)
        used = await_all(options, [process], 60 + options.seconds)
        if process.status != 0:
            raise NotRun("it ended with status %s: %s" % (process.status, process.said(300).strip()))
        seconds = time.monotonic() - begin
    with open(out, encoding="ascii") as file:
        predictions = [float(line.split()[0]) for line in file if line.strip()]
    return {"events": len(predictions), "predictions": predictions, "seconds": seconds,
            "samples_per_s": len(predictions) / seconds, "memory": used,
            "bytes": os.path.getsize(paths["today"]) * (len(options.boxes) - 1) // len(options.boxes)}


def run_yesterday(options, count):
    out = os.path.join(options.work, "predicted")
    subprocess.run([options.program, "predict", options.model, "--out", out, "--set",
                    "stream.files=" + options.labelled, "--set", "stream.samples_max=%d" % count], check=True,
                   timeout=60 + options.seconds, stderr=subprocess.DEVNULL)
    with open(out, encoding="ascii") as file:
        predictions = [float(line) for line in file]
    if any(math.isnan(p) for p in predictions):
        raise NotRun("a line of the events is no sample")
    return {"events": len(predictions), "predictions": predictions}
