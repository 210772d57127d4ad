"""loop - the parts of a proof that find the highest rate of events which the whole loop holds, and show a day of boxes.

Events are offered at a rate whatever the answers do. A rate holds if, in its window, freshness and answers keep their
bounds and everything that was offered is trained when the next rate begins. The rate is raised until one does not
hold, and then halfway back. A day goes on at half of the highest one while boxes and processes fail.
"""
import signal
import subprocess
import time

import numpy as np

import fresh
import online
from boxes import LAN

FRESH_S, ANSWER_MS = 2.4, 20  # bounds of the 99th percentile
FIRST_RATE, RAISED, RATES_MAX = 3000, 1.5, 9
TAIL_S = 3  # of answers behind a window: what they do not know is older than FRESH_S
DAY_RATE = 2000  # where no rate was found
AIMS_S = {"silent": 1, "killed": 2, "hub": 10}  # without a trained sample; silent: beyond timeouts.peer_s
HUB_AWAY_S, WINDOW_S = 5, 25
BINS_S = 1.0


def measured(said, ranks, trained, begin, end):
    """Of the events that were kept, and the questions that were due, in a time."""
    kept, seconds = fresh.freshness(said, ranks, trained)
    seconds = seconds[(kept >= begin) & (kept < end)]
    latencies = said.latencies(begin, end)
    in_ms = lambda value: None if value is None else value * 1000
    return {"fresh_p50_s": fresh.quantile(seconds, 0.5), "fresh_p99_s": fresh.quantile(seconds, 0.99),
            "answer_p50_ms": in_ms(fresh.quantile(latencies, 0.5)),
            "answer_p99_ms": in_ms(fresh.quantile(latencies, 0.99)), "unserved": int(np.isinf(latencies).sum())}


def holds(one):
    return (one["fresh_p99_s"] is not None and one["fresh_p99_s"] <= FRESH_S and one["answer_p99_ms"] is not None and
            one["answer_p99_ms"] <= ANSWER_MS and one["lost"] == 0)


def next_rate(steps):
    """Of (rate, whether it holds); None: between the highest that holds and the lowest that does not nothing is left
    to try."""
    held, broke = [rate for rate, ok in steps if ok], [rate for rate, ok in steps if not ok]
    if len(steps) == RATES_MAX:
        return None
    if not broke:
        return max(held) * RAISED if held else FIRST_RATE
    if not held:
        return min(broke) / RAISED
    return None if min(broke) / max(held) < RAISED * 0.99 else (min(broke) * max(held))**0.5


def finite(value):
    """A number that JSON has: None in place of infinity."""
    return value if value is None or value < float("inf") else None


class Loop(online.Site):
    def offered(self, rate):
        """What a rate does; None: there are too few events left."""
        settle, window = self.options.settle_s, self.options.window_s
        times = self.offer(rate, settle + window + TAIL_S)
        if not times:
            return None
        begin = times[0]
        self.go_until(times[1] + 0.2)
        trained = self.course.trained()
        whole = self.go_on(self.is_trained, online.DRAIN_S)
        one = measured(self.said(), self.kept.ranks, fresh.samples_by_iteration(self.course.history), begin + settle,
                       begin + settle + window)
        lost = self.asked * online.CHUNK - self.course.trained()
        one.update(rate=rate, backlog=self.asked * online.CHUNK - trained, lost=lost)
        one["holds"] = whole and holds(one)
        self.options.say("%5.0f events/s: freshness p99 %.2f s, answers p99 %.1f ms, %d not trained: %s" % (
            rate, one["fresh_p99_s"] or 0, one["answer_p99_ms"] or 0, lost, "holds" if one["holds"] else "breaks"))
        return one

    def run(self):
        try:
            self.open()
            self.warm()
            steps = []
            while True:
                rate = next_rate([(one["rate"], one["holds"]) for one in steps])
                one = self.offered(rate) if rate else None
                if one is None:
                    break
                steps.append(one)
                if one["lost"]:
                    break  # what comes next would begin behind it
            told = self.told()
            for one in steps:
                one.update((key, finite(one[key])) for key in list(one) if key.startswith(("fresh", "answer")))
            held = [one["rate"] for one in steps if one["holds"]]
            return dict(told, steps=steps, highest=max(held) if held else None, events_out=bool(rate and not one))
        finally:
            self.keep_metrics()
            self.close()


def longest(times, begin, end):
    """The longest time within [begin, end] without one of times, from the last one before begin on."""
    before = [at for at in times if at <= begin]
    marks = [max(before) if before else begin] + sorted(at for at in times if begin < at <= end) + [end]
    return max(b - a for a, b in zip(marks, marks[1:]))


class Day(online.Site):
    """later: the box whose plug is pulled, and the one that is added."""

    def events(self):
        """(share of the day, what, kind, how)."""
        silent, added = self.later
        return [(0.10, "plug of %s pulled" % silent, "silent", lambda: self.lan("cut", silent)),
                (0.22, "plug of %s back, box %s added" % (silent, added), "added", lambda: self.add(silent, added)),
                (0.50, "worker of %s killed" % self.workers[0], "killed", lambda: self.kill(self.workers[0], "worker")),
                (0.65, "shard of %s killed" % self.shards[1], "killed", lambda: self.kill(self.shards[1], "ps")),
                (0.78, "plug of the hub pulled for %d s" % HUB_AWAY_S, "hub", self.leave)]

    def lan(self, verb, box):
        subprocess.check_call([LAN, verb, box])

    def add(self, silent, added):
        self.lan("mend", silent)
        self.open_box(added)
        self.start(self.hub, "add", "add", self.folder + "/run", added)
        self.offer_rest()

    def kill(self, box, what):
        one = self.process(box, what)
        if one.process:
            one.process.send_signal(signal.SIGKILL)

    def leave(self):
        self.lan("cut", self.hub)
        self.go_until(time.monotonic() + HUB_AWAY_S)
        self.lan("mend", self.hub)

    def run(self):
        try:
            self.open()
            self.warm()
            self.first = self.next * online.CHUNK  # events before it warmed up
            rate = min((self.options.rate or 2 * DAY_RATE) / 2,
                       (self.options.count - self.first) * 0.98 / self.options.day_s)
            begin, end = self.offer(rate, self.options.day_s)
            marks = []
            for share, text, kind, strike in self.events():
                self.go_until(begin + share * (end - begin))
                marks.append({"at_s": time.monotonic() - begin, "text": text, "kind": kind})
                self.options.say("day: " + text)
                strike()
            self.go_until(end + TAIL_S)
            told = self.told()
            return dict(told, rate=rate, seconds=end - begin, marks=self.judged(marks, begin, end),
                        **self.seen(begin, end))
        finally:
            self.keep_metrics()
            self.close()

    def judged(self, marks, begin, end):
        """With the longest times without a trained sample, and of a shop that was there without an answer, until the
        next mark."""
        said = self.said()
        shops = [said.answered[(said.hub | said.own) & (said.shop == shop)] for shop in set(said.shop.tolist())]
        peer_s = self.options.config["timeouts"]["peer_s"]
        for one, after in zip(marks, [mark["at_s"] for mark in marks[1:]] + [end - begin]):
            some = begin + one["at_s"], begin + min(after, one["at_s"] + WINDOW_S)
            one["still_s"] = longest(self.course.done, *some)
            one["silent_s"] = max(longest(times, *some) for times in shops if times.min(initial=np.inf) < some[0])
            if one["kind"] in AIMS_S:
                one["aim_s"] = AIMS_S[one["kind"]] + (peer_s if one["kind"] == "silent" else 0)
        return marks

    def seen(self, begin, end):
        """What was said of which events, and freshness over time."""
        said = self.said()
        kept, seconds = fresh.freshness(said, self.kept.ranks, fresh.samples_by_iteration(self.course.history))
        curve = []
        for at in np.arange(0, end - begin, BINS_S):
            some = seconds[(kept - begin >= at) & (kept - begin < at + BINS_S)]
            if len(some):
                curve.append([float(at)] + [finite(fresh.quantile(some, share)) for share in (0.5, 0.99)])
        places, predictions = [], []
        for first, some in zip(said.first, said.predictions):
            if first >= self.first:
                places += range(first, first + online.CHUNK)
                predictions += some or [None] * online.CHUNK
        latencies = said.latencies(begin, end)
        within = (kept >= begin) & (kept < end - TAIL_S)
        return {"at": places, "predictions": predictions, "fresh": curve,
                "fresh_p50_s": finite(fresh.quantile(seconds[within], 0.5)),
                "fresh_p99_s": finite(fresh.quantile(seconds[within], 0.99)),
                "answer_p99_ms": finite((fresh.quantile(latencies, 0.99) or 0) * 1000),
                "unserved": sum(p is None for p in predictions), "own": int(said.own.sum()) * online.CHUNK,
                "before": self.course.log_loss(self.first)}


def run_loop(options):
    fast, slow = options.boxes[:3], options.boxes[3:]
    found = Loop(options, "loop", fast[1:] + slow, fast[1:]).run()
    options.rate = options.rate or found["highest"]
    return found


def run_day(options):
    fast, slow = options.boxes[:3], options.boxes[3:]
    found = Day(options, "day", fast[1:] + slow, fast[1:], later=slow).run()
    options.seen = max(found["at"]) + 1
    return found
