"""training - the part of a proof that trains alone: events of a file, nobody asks, nothing is pulled.

The boxes, links, memory and table are those of the rest. Four workers and two shards, named here and not chosen by what
came of it; once with numbers of 32 bits on the links and once of 8. PyTorch shards the same rows over all five boxes,
with the setting that was the fastest of TUNINGS on the first events. One box has all rows on its disk.
"""
import json
import os
import time

import numpy as np

import events
import online
import rivals
from boxes import counted

WIRES = {"train": "fp32", "train8": "int8"}
TUNINGS = [(1, 1000), (2, 1000), (1, 2000)]  # threads of a process of PyTorch, samples of its batches
TRIED, TRIED_QUICK = 20, 5  # batches for each of them
CAUSES = ("requests", "rows", "first_rows", "row_state", "gradients", "dense", "dense_weights", "slices", "reports",
          "control")  # without what a run moves before its first iteration and behind its last


class Trainer(online.Site):
    """A run that ends with its file."""

    def __init__(self, options, name, workers, shards, wire="fp32"):
        self.wire = wire
        super().__init__(options, name, workers, shards)

    def configuration(self):
        config = super().configuration()
        table = config["stream"]["table"]
        label = {"name": "clicked", "kind": "label"}
        config["stream"] = {"format": "table", "source": "file", "files": self.options.labelled,
                            "samples_max": self.options.trained,
                            "table": {"columns": [label] + table["columns"][1:]}}
        for key in ("publish", "feed"):
            del config[key]
        config["batch"] = {"samples_per_worker": self.options.batch // len(self.workers)}
        config["network"].update(row_wire=self.wire, dense_wire=self.wire)
        return config

    def run(self):
        self.began, self.moved = time.monotonic(), None
        self.killed_before = self.killed()
        before = counted(self.options.boxes)
        coordinator = self.start(self.hub, "coordinator", "coordinator", self.config, "--out", self.folder + "/run",
                                 "--init", self.options.model)
        for box in self.options.boxes:
            for what, some in (("ps", self.shards), ("worker", self.workers)):
                if box in some:
                    self.start(box, what, what, self.config, "--rank", str(some.index(box)))
        try:
            self.wait(coordinator)
            return self.told_of(before)
        finally:
            self.keep_metrics()
            self.close()

    def wait(self, coordinator):
        end = self.began + 60 + self.options.seconds
        while coordinator.status is None:
            try:
                self.step()
            except OSError as error:
                raise rivals.NotRun(str(error)) from error
            if self.moved is None and self.course.trained() >= self.options.trained:
                self.moved = counted(self.options.boxes)  # before the finished model
            if time.monotonic() > end:
                raise rivals.NotRun("not done after %.0f s" % (time.monotonic() - self.began))

    def told_of(self, before):
        with open(os.path.join(self.run_folder, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        told = dict(rate_of(summary), memory=self.memory, killed=self.killed() - self.killed_before)
        if self.moved:
            told["link_bytes"] = sum(self.moved[box] - before[box] for box in before) / told["samples"]
        return told


def rate_of(summary):
    """Of a run's summary: the start and the finished model, which no sample is trained by, are not in it."""
    samples, traffic = summary["samples"], summary["traffic"]
    causes = {name: traffic[name] / samples for name in CAUSES if traffic.get(name)}
    return {"samples": samples, "seconds": summary["seconds"], "samples_per_s": summary["samples_per_s"],
            "log_loss": summary["logloss"], "causes": causes,
            "cause_bytes": sum(causes.values())}


def fastest(tried):
    """Of (setting, samples/s)."""
    return max(tried, key=lambda one: one[1])[0]


def run_torch(options, today):
    """The fastest of TUNINGS on the first events, on all of them."""
    some = today.part(0, options.trained)
    tries = TRIED_QUICK if options.quick else TRIED
    tried = [(tuning, rivals.run_torch(options, some, *tuning, tries)["samples_per_s"]) for tuning in TUNINGS]
    options.say("PyTorch (threads, batch): " + ", ".join("%s %.0f/s" % one for one in tried))
    run = rivals.run_torch(options, some, *fastest(tried))
    count = run["events"]
    losses = events.log_losses(some.labels[:count], np.array(run.pop("predictions")))
    return dict(run, samples=count, log_loss=float(losses.mean()), link_bytes=run["bytes"] / count,
                tuning=fastest(tried), tried=tried)


def run(options, name, today):
    hub, fast, slow = options.boxes[0], options.boxes[1:3], options.boxes[3:]
    if name == "torch":
        return run_torch(options, today)
    if name == "trainone":
        return Trainer(options, name, [hub], [hub]).run()
    return Trainer(options, name, fast + slow, fast, WIRES[name]).run()
