"""online - Lanyard on the boxes of a proof, while events come: what was served, what it took, what was lost.

A coordinator in the first box, shards and workers where they are said to be, a feeder and a shop (shop.py) in every
box, a server of predictions beside the coordinator; boxes that may be cut off have one of their own, with the model of
this morning. Events are dealt to the shops as fast as they are trained, to all alike; what a shop has seen is for the
boxes to keep.
"""
import json
import os
import selectors
import shutil
import subprocess
import sys
import time

from boxes import DISK, LAN, Process, address, counted

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "torture"))
from runs import Metrics  # noqa: E402

PORTS = {"coordinator": 7000, "shard": 7001, "http": 7080, "feed": 7082, "serve": 8443, "own": 8077}
CHUNK, AHEAD = 64, 4  # events of a question; batches that may be on their way
HELD = 85  # percent of the events, until all boxes are there
DRAIN_S, STILL_S, SAVE_S, JOIN_S = 60, 20, 90, 60


def make_certificate(path, key):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=hub", "-keyout", key, "-out", path],
                   check=True, stderr=subprocess.DEVNULL)


def quantile(weighed, share):
    """Of (value, weight); None: there are none."""
    rest = share * sum(weight for _, weight in weighed)
    for value, weight in sorted(weighed):
        rest -= weight
        if rest <= 0:
            return value
    return None


class Course(Metrics):
    """With the log losses before training, of what survives."""

    def __init__(self, path):
        super().__init__(path)
        self.losses, self.resumed = {}, 0

    def take(self, record):
        super().take(record)
        if record["record"] == "iteration":
            self.losses[record["iteration"]] = record["quality"]["log_loss"]
        self.resumed += record["record"] == "resumed"

    def trained(self):
        return sum(count for _, count in self.history.values())

    def log_loss(self, first_sample):
        """Mean before training, of the samples from about this one on."""
        some = [(count, self.losses[number]) for number, (first, count) in self.history.items()
                if first >= first_sample]
        total = sum(count for count, _ in some)
        return sum(count * loss for count, loss in some) / total if total else float("nan")


class Shop:
    """The shop of a box, and how many events it was dealt."""

    def __init__(self, site, box):
        self.box, self.dealt, self.busy, self.asked = box, 0, False, 0
        command = [LAN, "in", box, "/usr/bin/python3", os.path.join(HERE, "shop.py"),
                   site.options.events_file, "%s:%d" % (address(site.hub), PORTS["serve"]), site.options.token,
                   site.options.certificate, "127.0.0.1:%d" % PORTS["http"]]
        command += ["127.0.0.1:%d" % PORTS["own"]] if box in site.later else []
        with open(os.path.join(site.logs, "shop-" + box), "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest = b""

    def deal(self, first, count):
        self.process.stdin.write(b"%d %d\n" % (first, count))
        self.process.stdin.flush()
        self.dealt, self.busy, self.asked = self.dealt + count, True, count

    def answers(self):
        """(first, count, who, samples, age, predictions) of what it has said since; who "-": nobody said anything."""
        self.rest += self.process.stdout.read() or b""
        *lines, self.rest = self.rest.split(b"\n")
        for line in lines:
            first, who, *told = line.decode("ascii").split()
            samples, age, *said = told or (0, 0)
            self.busy = False
            yield int(first), self.asked, who, int(samples), float(age), [float(p) for p in said]


class Site:
    """One run. workers: boxes that train; shards: boxes that hold rows; both in the order of options.boxes."""

    def __init__(self, options, name, workers, shards, later=()):
        self.options, self.name, self.workers, self.shards = options, name, workers, shards
        self.hub, self.later = options.boxes[0], list(later)
        self.logs = os.path.join(options.out, "logs", name)
        self.disks = {box: os.path.join(options.disks, name, box) for box in options.boxes}
        os.makedirs(self.logs)
        self.told = open(os.path.join(self.logs, "answers"), "w", encoding="ascii")
        self.config = os.path.join(options.work, name + ".json")
        with open(self.config, "w", encoding="utf-8") as file:
            json.dump(self.configuration(), file, indent=1)
        for box, disk in self.disks.items():
            os.makedirs(disk)
            subprocess.check_call([LAN, "disk", box, "%s=%s" % (disk, DISK + "/" + name)])
        self.folder = DISK + "/" + name
        self.run_folder = os.path.join(self.disks[self.hub], "run")
        self.course = Course(os.path.join(self.run_folder, "metrics.jsonl"))
        self.processes, self.shops, self.server, self.answers = [], {}, None, False
        self.predictions = [None] * options.count
        self.ages, self.own_answers = [], 0  # of the models that the hub answered with: (seconds, events)
        self.next, self.answered, self.cut, self.slack, self.served_from = 0, 0, None, 0, None
        self.added_s = self.joined_s = None
        self.memory, self.notes = {box: 0 for box in options.boxes}, []

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

    def start(self, box, what, *arguments, sets=()):
        command = [self.options.program, *arguments]
        for one in sets:
            command += ["--set", one]
        self.processes.append(Process(self.options.limits, box, command,
                                      os.path.join(self.logs, "%s-%s" % (what, box))))
        return self.processes[-1]

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
        seen = max([shop.dealt for shop in self.shops.values()] or [0])
        self.shops[box] = Shop(self, box)
        self.shops[box].dealt = seen

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

    # ---- dealing events

    def room(self):
        """Events that may be dealt now."""
        if not self.answers:
            return 2 * self.options.batch - self.next
        away = self.shops[self.cut].dealt - self.slack if self.cut else 0
        return AHEAD * self.options.batch + away - (self.next - self.course.trained())

    def is_whole(self):
        """The added box is in, and that with the plug, too; or they had their time."""
        if not self.later or self.joined_s:
            return True
        if not self.added_s:
            return False
        said = self.processes[0].said(1500).rpartition("coordinator: listening on")[2]
        if "going on after" in said and "is not there" not in said:
            self.joined_s = time.monotonic()
            self.note("all train")
        elif time.monotonic() > self.added_s + JOIN_S:
            self.joined_s = time.monotonic()
        return bool(self.joined_s)

    def deal(self):
        """To all shops alike: one that goes without answers, and is the sooner done, sees no more than the others."""
        last = self.options.count if self.is_whole() else HELD * self.options.count // 100
        for shop in self.shops.values():
            count = min(CHUNK, last - self.next, self.room())
            others = [other.dealt for other in self.shops.values() if other is not shop]
            if shop.busy or count <= 0 or shop.dealt > max(others) + CHUNK:
                continue
            shop.deal(self.next, count)
            self.next += count

    def hear(self, selector):
        for key, _ in selector.select(0.005):
            for first, count, who, samples, age, said in key.data.answers():
                seconds = time.monotonic() - self.began
                print("%.3f" % seconds, first, count, key.data.box, who, samples, age, file=self.told)
                self.answered += count
                self.predictions[first:first + len(said)] = said
                self.own_answers += len(said) if who == "own" else 0
                if who == "hub":
                    self.served_from = first if self.served_from is None else self.served_from
                    self.ages.append((age, count))

    # ---- what happens to boxes

    def happen(self):
        """Plugs and boxes, by the share of the events that were seen, or of the time."""
        share = max(self.next / self.options.count, (time.monotonic() - self.began) / self.options.seconds)
        if self.later and share > self.options.pulled and self.cut is None and not self.notes:
            self.cut = self.later[0]
            self.slack, self.pulled_s = self.shops[self.cut].dealt, time.monotonic()
            subprocess.check_call([LAN, "cut", self.cut])
            self.note("plug of %s pulled" % self.cut)
        if self.cut and share > self.options.added and time.monotonic() > self.pulled_s + self.options.away_s:
            subprocess.check_call([LAN, "mend", self.cut])
            self.note("plug of %s back, box %s added" % (self.cut, self.later[1]))
            self.cut, self.added_s = None, time.monotonic()
            self.open_box(self.later[1])
            self.adding = self.start(self.hub, "add", "add", self.folder + "/run", self.later[1])
            return True
        return False

    def note(self, text):
        self.notes.append({"at": self.next, "text": text, "s": round(time.monotonic() - self.began, 1)})
        self.options.say("%s: %s after %d events" % (self.name, text, self.next))

    def watch(self):
        """Once in a while: how much memory each box uses, and whether somebody answers."""
        self.answers = self.answers or bool(self.server and "listening" in self.server.said())
        for box in self.memory:
            self.memory[box] = max(self.memory[box], self.options.limits.used(box))

    def run(self):
        self.began = time.monotonic()
        before = counted(self.options.boxes)
        self.start(self.hub, "coordinator", "coordinator", self.config, "--out", self.folder + "/run", "--init",
                   self.options.model, "--restart")
        for box in self.options.boxes:
            if not self.later or box != self.later[1]:
                self.open_box(box)
        selector = selectors.DefaultSelector()
        for shop in self.shops.values():
            selector.register(shop.process.stdout, selectors.EVENT_READ, shop)
        try:
            return self.result(before, self.go(selector))
        finally:
            self.close()

    def go(self, selector):
        """Until all events are trained; false: the time was over before."""
        end, looked, done_at, still = self.began + self.options.seconds, 0.0, None, (0, self.began)
        self.first_s = self.last_s = None
        while True:
            now = time.monotonic()
            for one in self.processes:
                one.step()
            self.course.poll()
            self.serve()
            self.hear(selector)
            if now < end:
                self.deal()
                if self.happen():
                    shop = self.shops[self.later[1]]
                    selector.register(shop.process.stdout, selectors.EVENT_READ, shop)
            if now > looked + 0.5:
                self.watch()
                looked = now
            self.first_s = self.first_s or (now if self.next else None)
            trained = self.course.trained()
            if trained > still[0]:
                self.last_s, still = now, (trained, now)
            if self.answered == self.next and (now >= end or self.next == self.options.count):
                done_at = done_at or now
                if self.cut:  # nobody mended it: the time was over
                    subprocess.check_call([LAN, "mend", self.cut])
                    self.note("plug of %s back" % self.cut)
                    self.cut = None
                waits = "waiting for the input" in self.processes[0].said(200)
                if trained >= self.next or (waits and now > max(done_at, still[1]) + STILL_S):
                    return True
                if now > done_at + DRAIN_S:
                    return False
            failed = [one for one in self.processes if one.status]
            if failed:
                raise OSError("%s ended with status %d: %s" % (os.path.basename(failed[0].log), failed[0].status,
                                                               failed[0].said(400).strip().splitlines()[-1]))
            if now > end + DRAIN_S:
                return False

    def result(self, before, is_done):
        coordinator = self.processes[0]
        after = counted(self.options.boxes)
        coordinator.end(SAVE_S)
        summary = {}
        path = os.path.join(self.run_folder, "summary.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                summary = json.load(file)
        self.course.poll()
        trained = self.course.trained()
        self.keep_metrics()
        killed = sum(self.options.limits.killed(box) for box in self.options.boxes)
        if coordinator.status != 0:
            self.notes.append({"at": self.next, "s": 0, "text": "ended with status %s" % coordinator.status})
        return {"events": self.next, "answered": self.answered, "trained": trained,
                "lost": self.answered - trained if is_done else None, "untrained": self.answered - trained,
                "served_from": self.served_from, "predictions": self.predictions[:self.next],
                "unserved": sum(p is None for p in self.predictions[self.served_from or 0:self.next]),
                "seconds": (self.last_s or time.monotonic()) - (self.first_s or self.began),
                "samples_per_s": trained / max(1e-9, (self.last_s or time.monotonic()) - (self.first_s or self.began)),
                "own": self.own_answers, "age_p50_s": quantile(self.ages, 0.5), "age_p90_s": quantile(self.ages, 0.9),
                "bytes": sum(after[box] - before[box] for box in after), "memory": self.memory, "killed": killed,
                "starts": coordinator.starts, "notes": self.notes, "join": summary.get("join"),
                "keys": summary.get("keys"), "log_loss_before_training":
                    self.course.log_loss((self.served_from or 0))}

    def keep_metrics(self):
        """Beside the logs: disks go."""
        path = os.path.join(self.run_folder, "metrics.jsonl")
        if os.path.exists(path):
            shutil.copy(path, self.logs)

    def close(self):
        self.told.close()
        for shop in self.shops.values():
            shop.process.kill()
            shop.process.wait()
        for one in reversed(self.processes):
            one.end()
