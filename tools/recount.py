#!/usr/bin/env python3
"""Counts again, from the definitions alone, what a simulation says that it moves.

    build/lanyard sim CONFIG --policies esd --trace TRACE --placements PLACEMENTS [--set ...]
    tools/recount.py PLACEMENTS TRACE --workers N --rows CACHE_ROWS [--eviction emark|lru|lfu|light_lfu|ttl]
                     [--lookahead BATCHES]
                     [--first-touch local|pull] [--full-sync] [--hand-over] [--staleness S|inf] [--overshoot ROWS]
    tools/recount.py PLACEMENTS TRACE --workers N --hot PROFILE [--first-touch local|pull]

PLACEMENTS says who trains which sample, and the sample's keys; TRACE what every worker pulled and
pushed in every iteration. Nothing is shared with the program: the rules below are those of the papers
and of docs/PROTOCOL.md. Not covered: rows of different sizes; a flush. Needs
nothing beyond Python's standard library. Exit status 1: a count differs.

Synchronous training. Every key has a version, the iteration that trained it last. A worker may train
a row only in the latest version.
  - One worker trained it: that worker holds the latest version, and the parameter server (PS) lacks
    it until the worker pushes it: when another worker trains the row (update push), or when its slot
    is needed (evict push). With --full-sync it pushes at the beginning of the next iteration.
    With --hand-over a row that the PS lacks goes straight to the worker that alone trains it: nobody
    pushes or pulls it, and the PS goes on lacking it.
  - Several did: each has its own gradient only and pushes it (gradient push); the PS has the latest
    version, nobody else.
  - A worker without the latest version pulls it (miss pull). A row never trained before is a first
    touch, made by the worker itself, or pulled too (--first-touch pull).

A cache has CACHE_ROWS slots. Free slots are a stack, at first with slot 0 on top. In an iteration rows
are used worker by worker, first those that are there, then the others, each in order of appearance; a
row takes a free slot or the victim's. No row that the worker trains in this iteration is a victim.
  - lru: the victim was used longest ago. lfu: it has the lowest frequency, and reached it first. The
    slot of an outdated copy is free at once.
  - ttl (Bagpipe, section 3.2): as lru, with a time to live. A row of a batch that is in none of the next
    BATCHES batches leaves its worker at the beginning of the next iteration; if the PS lacks it, it is
    pushed first (evict push).
  - With --lookahead BATCHES a row that one of so many next batches has is no victim while another one can
    be; then the row whose next use is farthest away is, then the lowest slot.
  - light_lfu: as lfu, but a row of frequency 10 or more is no victim. With every victim a hand moves on
    by a slot, at first slot 0, and halves the frequency of the row there, unless this iteration uses it
    or it is 1; below 10 the row is then before all others of its frequency. With no victim otherwise the
    hand moves on until there is one.
  - emark (ESD, section 8.1): the smallest (version, mark, frequency), where an outdated version is
    smaller than the latest, then the lowest slot. Use sets the mark to target; when all latest rows
    that could go have the mark target, target grows by one. An outdated copy keeps its slot and
    frequency, and a pull of its row goes there.

Hot rows (FAE; --hot PROFILE, a file of `lanyard profile`). Every trainer of a row, hot or not, pushes its
gradient, also one that is alone; the PS has the latest version.
  - Nobody keeps a cold row: who trains it pulls it.
  - A hot row that nobody trains in an iteration, nor in the one before, is pulled by every worker that lacks
    it. All keep it until somebody trains it; then nobody has it. Before its first training nobody pulls it.

Bounded staleness S (HET, VLDB'22, section 3; --staleness). A row has a clock, a copy has the clock that
the row had when it was pulled and one of its own, one more with every iteration that trains it there. A
copy may be read while its own clock is at most S above that of its pull, and the row's at most S above
its own.
  - Read, worker by worker: a copy that is there and may not be read is pushed (update push). Then every
    worker pulls what it lacks or has just pushed; a row that nobody has pushed yet is a first touch.
  - Write: the clocks of all copies that were read go on by one.
  - Then, worker by worker, while a cache has more than CACHE_ROWS rows, its victim is pushed (evict push)
    and gone; within the iteration it had room for all (--overshoot: slots beyond CACHE_ROWS, as many as a
    worker's samples have keys at most). Rows of this iteration may be victims.
  - A push sets the row's clock to the copy's, if that is larger.
  - S = 0: no copy is there at the next read. Every worker pulls every row that it trains, and pushes its
    gradient.
"""
import argparse
import collections
import heapq
import itertools
import json
import sys

KINDS = ("miss_pull", "update_push", "evict_push", "flush_push", "grad_push", "first_touch")


class Slot:
    """A row in a cache."""
    __slots__ = ("key", "latest", "mark", "frequency", "used", "turn", "direct", "next_use")

    def __init__(self, key):
        self.key, self.latest = key, True
        self.mark = self.frequency = self.used = self.turn = self.next_use = 0
        self.direct = False


class Cache:
    """One worker's slots, and which row has to go."""

    def __init__(self, row_count, eviction, overshoot=0):
        self.eviction = eviction
        self.slots = [None] * (row_count + overshoot)
        self.slot_of = {}
        self.row_count = row_count
        self.free = list(range(len(self.slots) - 1, -1, -1))
        self.target = 1
        self.turns = itertools.count(1)
        self.queue, self.queue_iteration = [], 0
        self.hand, self.passed = 0, itertools.count(-1, -1)

    def has_latest(self, key):
        return key in self.slot_of and self.slots[self.slot_of[key]].latest

    def use(self, key, iteration):
        slot = self.slots[self.slot_of[key]]
        slot.latest, slot.mark, slot.used = True, self.target, iteration
        slot.frequency += 1
        slot.turn = next(self.turns)
        slot.direct = self.eviction == "light_lfu" and slot.frequency >= 10

    def put(self, key, iteration):
        at = self.free.pop()
        self.slots[at], self.slot_of[key] = Slot(key), at
        self.use(key, iteration)

    def remove(self, key):
        at = self.slot_of.pop(key)
        self.slots[at] = None
        self.free.append(at)

    def outdate(self, key):
        if self.eviction == "emark":
            self.slots[self.slot_of[key]].latest = False
        else:
            self.remove(key)

    def order(self, slot):
        if self.eviction == "emark":
            return slot.latest, slot.mark, slot.frequency
        return (slot.turn,) if self.eviction in ("lru", "ttl") else (slot.frequency, slot.turn)

    def move_hand(self, iteration):
        """light_lfu: a row with a new frequency joins the queue again."""
        at, slot = self.hand, self.slots[self.hand]
        self.hand = (at + 1) % len(self.slots)
        if not slot or slot.used == iteration or slot.frequency == 1:
            return
        slot.frequency //= 2
        slot.direct = slot.frequency >= 10
        if not slot.direct:
            slot.turn = next(self.passed)
            heapq.heappush(self.queue, (self.order(slot), at, slot.key))

    def drop_old_entries(self):
        """Entries of rows that have changed since. Returns whether one is left."""
        while self.queue:
            order, at, key = self.queue[0]
            slot = self.slots[at]
            if slot and slot.key == key and not slot.direct and self.order(slot) == order:
                return True
            heapq.heappop(self.queue)
        return False

    def farthest(self, iteration):
        """Of rows that are all needed: the key whose next use is last."""
        return max((slot.next_use, -at, slot.key) for at, slot in enumerate(self.slots)
                   if slot and slot.used != iteration)[2]

    def victim(self, iteration):
        """The key that has to go. Within an iteration rows only leave the queue."""
        if self.queue_iteration != iteration:
            self.queue_iteration = iteration
            self.queue = [(self.order(slot), at, slot.key) for at, slot in enumerate(self.slots)
                          if slot and slot.used != iteration and not slot.direct
                          and slot.next_use <= iteration]
            heapq.heapify(self.queue)
        if not self.queue and self.eviction in ("lru", "ttl"):
            return self.farthest(iteration)
        if self.eviction == "light_lfu":
            self.move_hand(iteration)
            while not self.drop_old_entries():
                self.move_hand(iteration)
        order, _, key = heapq.heappop(self.queue)
        if self.eviction == "emark" and order[0] and order[1] == self.target:
            self.target += 1  # the smallest mark of all that could go
        return key


class Recount:
    """All workers and the parameter server."""

    def __init__(self, options):
        self.options = options
        self.caches = [Cache(options.rows, options.eviction) for _ in range(options.workers)]
        self.version = collections.defaultdict(int)  # latest
        self.version_ps = collections.defaultdict(int)
        self.unsynced = []  # (worker, key) with --full-sync
        self.handed = set()  # keys of this iteration, with --hand-over
        self.expired = []  # keys, with --eviction ttl

    def expect(self, ahead):
        """ahead: the keys of each of the next batches, once this one is looked up."""
        self.next_use = {}
        for iteration, keys in ahead:
            for key in keys:
                self.next_use.setdefault(key, iteration)
        for cache in self.caches:
            for slot in cache.slots:
                if slot:
                    slot.next_use = self.next_use.get(slot.key, 0)

    def expire(self, counts):
        for key in self.expired:
            worker = self.holder(key)
            if worker is None:
                continue
            if self.version_ps[key] < self.version[key]:
                counts[worker]["evict_push"] += 1
                self.version_ps[key] = self.version[key]
            self.caches[worker].remove(key)
        self.expired = []

    def holder(self, key):
        return next((w for w, cache in enumerate(self.caches) if cache.has_latest(key)), None)

    def release(self, trainers, counts):
        for worker, _ in self.unsynced:
            counts[worker]["update_push"] += 1
        self.unsynced = []
        self.handed = set()
        for key, users in trainers.items():
            holder = self.holder(key)
            if holder is None:
                continue
            is_lacking = self.version_ps[key] < self.version[key] and users != {holder}
            if is_lacking and self.options.hand_over and len(users) == 1:
                self.handed.add(key)
            elif is_lacking:
                counts[holder]["update_push"] += 1
                self.version_ps[key] = self.version[key]
            if holder not in users:
                self.caches[holder].outdate(key)

    def make_room(self, worker, iteration, counts):
        cache = self.caches[worker]
        victim = cache.victim(iteration)
        if cache.has_latest(victim) and self.version_ps[victim] < self.version[victim]:
            counts[worker]["evict_push"] += 1
            self.version_ps[victim] = self.version[victim]
        cache.remove(victim)

    def fetch(self, worker, key, counts):
        if key in self.handed:
            return
        if self.version[key] == 0:
            counts[worker]["first_touch"] += 1
        if self.version[key] > 0 or self.options.first_touch == "pull":
            counts[worker]["miss_pull"] += 1

    def place(self, worker, keys, iteration, counts):
        cache = self.caches[worker]
        missing = [key for key in keys if not cache.has_latest(key)]
        absent = [key for key in missing if key not in cache.slot_of]
        for key in keys:
            if key in cache.slot_of:
                cache.use(key, iteration)
        for key in absent:
            if not cache.free:
                self.make_room(worker, iteration, counts)
            cache.put(key, iteration)
            cache.slots[cache.slot_of[key]].next_use = self.next_use.get(key, 0)
        for key in missing:
            self.fetch(worker, key, counts)

    def train(self, trainers, iteration, counts):
        for key, users in trainers.items():
            self.version[key] = iteration
            if len(users) == 1:
                if self.options.full_sync:
                    self.unsynced.append((min(users), key))
                    self.version_ps[key] = iteration  # the push comes before anything else
                continue
            self.version_ps[key] = iteration
            for worker in users:
                counts[worker]["grad_push"] += 1
                self.caches[worker].outdate(key)

    def step(self, iteration, samples):
        """samples: (worker, keys) in the order of the batch. Returns counts by worker."""
        counts = [dict.fromkeys(KINDS, 0) for _ in range(self.options.workers)]
        rows = [{} for _ in range(self.options.workers)]  # keys in order of appearance
        trainers = {}
        for worker, keys in samples:
            for key in keys:
                rows[worker][key] = None
                trainers.setdefault(key, set()).add(worker)
        self.expire(counts)
        self.release(trainers, counts)
        for worker, keys in enumerate(rows):
            self.place(worker, list(keys), iteration, counts)
        self.train(trainers, iteration, counts)
        if self.options.eviction == "ttl":
            self.expired = [key for key in trainers if key not in self.next_use]
        return counts


class Copy:
    """A row at a worker, with bounded staleness."""
    __slots__ = ("start", "current")

    def __init__(self, clock):
        self.start = self.current = clock


class StaleRecount:
    """All workers and the parameter server, with bounded staleness."""

    def __init__(self, options):
        self.staleness, self.first_touch = options.staleness, options.first_touch
        self.caches = [Cache(options.rows, options.eviction, options.overshoot)
                       for _ in range(options.workers)]
        self.copies = [{} for _ in range(options.workers)]
        self.clock = collections.defaultdict(int)
        self.pushed = set()

    def push(self, worker, key, kind, counts):
        counts[worker][kind] += 1
        self.pushed.add(key)
        self.clock[key] = max(self.clock[key], self.copies[worker].pop(key).current)

    def fetch(self, worker, key, counts):
        if key not in self.pushed:
            counts[worker]["first_touch"] += 1
        if key in self.pushed or self.first_touch == "pull":
            counts[worker]["miss_pull"] += 1
        self.copies[worker][key] = Copy(self.clock[key])

    def is_valid(self, worker, key):
        copy = self.copies[worker][key]
        return (copy.current <= copy.start + self.staleness and
                self.clock[key] <= copy.current + self.staleness)

    def read(self, rows, iteration, counts):
        absent = []
        for worker, keys in enumerate(rows):
            absent.append([key for key in keys if key not in self.copies[worker]])
            for key in keys:
                if key not in self.copies[worker]:
                    continue
                self.caches[worker].use(key, iteration)
                if not self.is_valid(worker, key):
                    self.push(worker, key, "update_push", counts)
        for worker, keys in enumerate(rows):
            cache = self.caches[worker]
            for key in absent[worker]:
                cache.put(key, iteration)
            for key in keys:
                if key not in self.copies[worker]:
                    self.fetch(worker, key, counts)

    def write(self, rows, iteration, counts):
        for worker, keys in enumerate(rows):
            for key in keys:
                self.copies[worker][key].current += 1
        for worker, cache in enumerate(self.caches):
            while len(cache.slot_of) > cache.row_count:
                victim = cache.victim(iteration + 1)
                self.push(worker, victim, "evict_push", counts)
                cache.remove(victim)

    def step(self, iteration, samples):
        counts = [dict.fromkeys(KINDS, 0) for _ in self.caches]
        rows = [{} for _ in self.caches]
        for worker, keys in samples:
            rows[worker].update(dict.fromkeys(keys))
        if self.staleness > 0:
            self.read(rows, iteration, counts)
            self.write(rows, iteration, counts)
            return counts
        for worker, keys in enumerate(rows):
            for key in keys:
                self.fetch(worker, key, counts)
                counts[worker]["grad_push"] += 1
        self.pushed.update(*rows)
        return counts


class HotRecount:
    """All workers and the parameter server, with rows that every worker keeps."""

    def __init__(self, options):
        self.first_touch, self.workers = options.first_touch, set(range(options.workers))
        with open(options.hot, encoding="ascii") as file:
            next(file)
            self.hot = {f"{int(line.split()[0], 16):x}" for line in file}
        self.version = {}  # latest
        self.holders = collections.defaultdict(set)

    def step(self, iteration, samples):
        counts = [dict.fromkeys(KINDS, 0) for _ in self.workers]
        trained = {(worker, key) for worker, keys in samples for key in keys}
        keys = {key for _, key in trained}
        for worker, key in trained:
            counts[worker]["grad_push"] += 1
            if worker in self.holders[key]:
                continue
            counts[worker]["first_touch"] += key not in self.version
            counts[worker]["miss_pull"] += key in self.version or self.first_touch == "pull"
        for key in self.hot & self.version.keys() - keys:
            if self.version[key] == iteration - 1:
                continue
            for worker in self.workers - self.holders[key]:
                counts[worker]["miss_pull"] += 1
            self.holders[key] = self.workers
        for key in keys:
            self.version[key] = iteration
            self.holders[key] = set()
        return counts


def batches(path):
    """Iterations of a file of placements, each with its samples."""
    with open(path, encoding="ascii") as file:
        lines = (line.split() for line in file)
        for iteration, group in itertools.groupby(lines, key=lambda words: int(words[0])):
            yield iteration, [(int(words[1]), words[2:]) for words in group]


def read_trace(path):
    with open(path, encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    return {(line["iteration"], line["worker"]): line for line in lines}


def recount_of(options):
    if options.hot:
        return HotRecount(options)
    return Recount(options) if options.staleness is None else StaleRecount(options)


def compare(options):
    trace = read_trace(options.trace)
    recount = recount_of(options)
    compared = different = 0
    all_batches = list(batches(options.placements))
    keys = [(iteration, {key for _, keys in samples for key in keys})
            for iteration, samples in all_batches]
    for number, (iteration, samples) in enumerate(all_batches, 1):
        if isinstance(recount, Recount):
            recount.expect(keys[number:number + options.lookahead])
        for worker, counts in enumerate(recount.step(iteration, samples)):
            said = trace.pop((iteration, worker), None)
            if said is None:
                sys.exit(f"{options.trace}: no line of iteration {iteration}, worker {worker}")
            for kind in KINDS:
                compared += 1
                if said.get(kind, 0) == counts[kind]:
                    continue
                different += 1
                if different <= 10:
                    print(f"iteration {iteration}, worker {worker}: {kind} {said.get(kind, 0)}, "
                          f"counted {counts[kind]}")
    if trace:
        sys.exit(f"{options.trace}: {len(trace)} lines of iterations that {options.placements} "
                 "does not have")
    print(f"{compared} counts compared, {different} differ")
    return 1 if different or not compared else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("placements")
    parser.add_argument("trace")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--rows", type=int, help="slots of a cache (all but --hot)")
    parser.add_argument("--eviction", choices=("emark", "lru", "lfu", "light_lfu", "ttl"),
                        default="emark")
    parser.add_argument("--lookahead", type=int, default=0, help="batches (lru, ttl)")
    parser.add_argument("--first-touch", choices=("local", "pull"), default="local")
    parser.add_argument("--full-sync", action="store_true")
    parser.add_argument("--hand-over", action="store_true")
    parser.add_argument("--staleness", type=float, help="S, or inf; without it: synchronous training")
    parser.add_argument("--overshoot", type=int, default=0)
    parser.add_argument("--hot", metavar="PROFILE", help="rows that every worker keeps")
    options = parser.parse_args()
    if not options.hot and options.rows is None:
        parser.error("the following arguments are required: --rows")
    sys.exit(compare(options))


if __name__ == "__main__":
    main()
