"""online - Lanyard on the boxes of a proof, while events are offered at a rate: what was served, what it took, what was
lost.

A coordinator in the first box, shards and workers where they are said to be, a feeder and a shop (shop.py) in every
box, a server of predictions beside the coordinator; boxes that may be cut off have one of their own, with the model of
this morning. What a shop offers, and when, does not depend on what comes back; what it has seen is for the boxes to
keep.
"""
import json
import os
import shutil
import subprocess
import sys
import time

import fresh
from boxes import DISK, LAN, Process, address, counted
from shop import CHUNK

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "torture"))
from runs import Metrics  # noqa: E402

PORTS = {"coordinator": 7000, "shard": 7001, "http": 7080, "feed": 7082, "serve": 8443, "own": 8077}
WARM_RATE, WARM_S, FIRST_S, AHEAD_S = 1000, 2, 60, 2  # events/s while there is no version, for so long at a time
DRAIN_S, SAVE_S, LOOK_S = 40, 90, 0.05


def make_certificate(path, key):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=hub", "-keyout", key, "-out", path],
                   check=True, stderr=subprocess.DEVNULL)


class Course(Metrics):
    """With the log losses before training, of what survives, and when samples were trained, by this process' clock."""

    def __init__(self, path):
        super().__init__(path)
        self.losses, self.done = {}, []

    def take(self, record):
        super().take(record)
        if record["record"] == "iteration":
            self.losses[record["iteration"]] = record["quality"]["log_loss"]
            self.done.append(time.monotonic())

    def trained(self):
        return sum(count for _, count in self.history.values())

    def log_loss(self, first_sample):
        """Mean before training, of the samples from about this one on."""
        some = [(count, self.losses[number]) for number, (first, count) in self.history.items()
                if first >= first_sample]
        total = sum(count for count, _ in some)
        return sum(count * loss for count, loss in some) / total if total else float("nan")


class Shop:
    """The shop of a box."""

    def __init__(self, site, box):
        self.said = os.path.join(site.disks[box], "said")
        command = [LAN, "in", box, "/usr/bin/python3", os.path.join(HERE, "shop.py"),
                   site.options.events_file, "%s:%d" % (address(site.hub), PORTS["serve"]), site.options.token,
                   site.options.certificate, "127.0.0.1:%d" % PORTS["http"], site.folder + "/said"]
        command += ["127.0.0.1:%d" % PORTS["own"]] if box in site.later else []
        with open(os.path.join(site.logs, "shop-" + box), "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log)

    def offer(self, first, step, count, start, period):
        self.process.stdin.write(b"%d %d %d %.6f %.9f\n" % (first, step, count, start, period))
        self.process.stdin.flush()


class Site:
    """One run. workers: boxes that train; shards: boxes that hold rows; both in the order of options.boxes. later: a
    box that may be cut off, and one that is added."""

    def __init__(self, options, name, workers, shards, later=()):
        self.options, self.name, self.workers, self.shards = options, name, workers, shards
        self.hub, self.later = options.boxes[0], list(later)
        self.logs = os.path.join(options.out, "logs", name)
        self.disks = {box: os.path.join(options.disks, name, box) for box in options.boxes}
        os.makedirs(self.logs)
        self.config = os.path.join(options.work, name + ".json")
        with open(self.config, "w", encoding="utf-8") as file:
            json.dump(self.configuration(), file, indent=1)
        for box, disk in self.disks.items():
            os.makedirs(disk)
            subprocess.check_call([LAN, "disk", box, "%s=%s" % (disk, DISK + "/" + name)])
        self.folder = DISK + "/" + name
        self.run_folder = os.path.join(self.disks[self.hub], "run")
        self.course = Course(os.path.join(self.run_folder, "metrics.jsonl"))
        self.kept = fresh.Kept(os.path.join(self.run_folder, "journal", "outcomes"))
        self.processes, self.shops, self.server, self.looked = [], {}, None, 0.0
        self.next, self.asked = 0, 0  # chunk that is offered next; questions so far
        self.memory = {box: 0 for box in options.boxes}

    def configuration(self):
        config = json.loads(json.dumps(self.options.config))
        hub = address(self.hub)
        config["boxes"] = []
        for box in self.options.boxes:
            if box not in self.workers + self.shards:
                continue
            one = {"name": box, "gbps": self.options.mbit[box] / 1000, "workers": int(box in self.workers),
                   "shards": int(box in self.shards), "spare": box in self.later[1:]}
            if box in self.shards:
                one.update(host=address(box), port=PORTS["shard"])
            config["boxes"].append(one)
        config["batch"]["samples_per_worker"] = self.options.batch // len(self.workers)
        config["network"] = {"coordinator": "%s:%d" % (hub, PORTS["coordinator"])}
        config["feed"] = {"listen": "%s:%d" % (hub, PORTS["feed"]), "to": "%s:%d" % (hub, PORTS["feed"])}
        config["checkpoint"]["directory"] = DISK + "/" + self.name + "/checkpoints"
        config["ps"].update(folder=DISK + "/" + self.name)
        return config

    # ---- processes

    def start(self, box, what, *arguments, sets=()):
        command = [self.options.program, *arguments]
        for one in sets:
            command += ["--set", one]
        self.processes.append(Process(self.options.limits, box, command,
                                      os.path.join(self.logs, "%s-%s" % (what, box))))
        return self.processes[-1]

    def process(self, box, what):
        return next(one for one in self.processes if one.box == box and one.command[1] == what)

    def open(self):
        """Everything but the box that is added."""
        self.began, self.moved = time.monotonic(), counted(self.options.boxes)
        self.killed_before = self.killed()
        self.start(self.hub, "coordinator", "coordinator", self.config, "--out", self.folder + "/run", "--init",
                   self.options.model, "--restart")
        for box in self.options.boxes:
            if box not in self.later[1:]:
                self.open_box(box)

    def open_box(self, box):
        """Everything of a box but the coordinator and the server of predictions."""
        self.start(box, "feed", "feed", self.config, "--spool", self.folder + "/spool",
                   sets=["stream.source=http", "stream.join.source=http",
                         "stream.http.listen=127.0.0.1:%d" % PORTS["http"]])
        if box in self.shards:
            self.start(box, "ps", "ps", self.config, "--rank", str(self.shards.index(box)))
        if box in self.workers:
            self.start(box, "worker", "worker", self.config, "--rank", str(self.workers.index(box)))
        if box in self.later:
            self.start(box, "serve", "serve", self.options.model, sets=self.server_sets() + [
                "serve.address=127.0.0.1:%d" % PORTS["own"]])
        self.shops[box] = Shop(self, box)

    def server_sets(self):
        return ["ps.storage=disk", "ps.folder=" + self.folder, "serve.candidates_max=%d" % CHUNK]

    def serve(self):
        """Once there is a first version."""
        if self.server is None and os.path.exists(os.path.join(self.run_folder, "published", "current.json")):
            self.server = self.start(
                self.hub, "serve", "serve", self.folder + "/run/published",
                sets=self.server_sets() + [
                      "serve.address=%s:%d" % (address(self.hub), PORTS["serve"]), "serve.log=%s/served" % self.folder,
                      "feed.to=%s:%d" % (address(self.hub), PORTS["feed"]), "security.insecure=true",
                      "security.certificate=" + self.options.certificate, "security.token=" + self.options.token,
                      "security.certificate_key=" + self.options.certificate_key])

    def step(self):
        for one in self.processes:
            one.step()
        self.course.poll()
        if self.shops:
            self.kept.poll()
            self.serve()
        if time.monotonic() > self.looked + 0.5:
            self.looked = time.monotonic()
            for box in self.memory:
                self.memory[box] = max(self.memory[box], self.options.limits.used(box))
        failed = [one for one in self.processes if one.status]
        if failed:
            raise OSError("%s ended with status %d: %s" % (os.path.basename(failed[0].log), failed[0].status,
                                                           failed[0].said(400).strip()))
        time.sleep(LOOK_S)

    def go_on(self, done, limit_s):
        """Whether it is done within so many seconds."""
        end = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > end:
                return False
            self.step()
        return True

    def go_until(self, at):
        self.go_on(lambda: time.monotonic() >= at, 3600)

    def killed(self):
        return sum(self.options.limits.killed(box) for box in self.options.boxes)

    # ---- events

    def offer(self, rate, seconds):
        """Of all boxes together, from AHEAD_S from now on; those that are not there yet keep their part. When it begins
        and ends; None: so many events are not left."""
        boxes = self.options.boxes
        period = len(boxes) * CHUNK / rate
        count = round(seconds / period)
        if (self.next + count * len(boxes)) * CHUNK > self.options.count:
            return None
        begin = time.monotonic() + AHEAD_S
        for number, box in enumerate(boxes):
            plan = ((self.next + number) * CHUNK, len(boxes) * CHUNK, count, begin + number * period / len(boxes),
                    period)
            if box in self.shops:
                self.shops[box].offer(*plan)
                self.asked += count
            else:
                self.waits = box, plan
        self.next += count * len(boxes)
        return begin, begin + count * period

    def offer_rest(self):
        """To the shop of a box that was added: its part of what is still to come."""
        box, (first, step, count, start, period) = self.waits
        past = max(0, int((time.monotonic() + AHEAD_S - start) / period) + 1)
        if past < count:
            self.shops[box].offer(first + past * step, step, count - past, start + past * period, period)
            self.asked += count - past

    def heard(self):
        """Questions that shops are done with."""
        return sum(open(one.said, "rb").read().count(b"\n") for one in self.shops.values() if os.path.exists(one.said))

    def is_trained(self):
        return self.course.trained() >= self.asked * CHUNK and self.heard() == self.asked

    def warm(self):
        """Until there is a version that answers."""
        end = time.monotonic() + FIRST_S + self.options.table_bytes / 20e6
        while not (self.server and "listening" in self.server.said()):
            if time.monotonic() > end or not self.offer(WARM_RATE, WARM_S):
                raise OSError("no version answers after %.0f s" % (time.monotonic() - self.began))
            self.go_until(time.monotonic() + AHEAD_S + WARM_S)
        self.go_on(self.is_trained, DRAIN_S)

    def said(self):
        return fresh.Said([one.said for one in self.shops.values()], CHUNK)

    def told(self):
        """Of all that was offered; ends the run."""
        whole = self.go_on(self.is_trained, DRAIN_S)
        coordinator, after = self.processes[0], counted(self.options.boxes)
        trained = self.course.trained()
        coordinator.end(SAVE_S)
        kept = len(self.said().first) * CHUNK
        return {"kept": kept, "trained": trained, "lost": kept - trained if whole else None,
                "untrained": kept - trained, "link_bytes": sum(after[box] - self.moved[box] for box in after) /
                max(1, trained), "memory": self.memory, "killed": self.killed() - self.killed_before,
                "starts": coordinator.starts}

    def keep_metrics(self):
        """Beside the logs: disks go."""
        path = os.path.join(self.run_folder, "metrics.jsonl")
        if os.path.exists(path):
            shutil.copy(path, self.logs)
        for box, one in self.shops.items():
            if os.path.exists(one.said):
                shutil.copy(one.said, os.path.join(self.logs, "said-" + box))

    def close(self):
        for shop in self.shops.values():
            shop.process.kill()
            shop.process.wait()
        for one in reversed(self.processes):
            one.end()
