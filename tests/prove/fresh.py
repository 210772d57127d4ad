"""fresh - how long it takes from an outcome that is kept until the first answer of a model that has learnt from it.

The coordinator's journal of outcomes says in which order they came to the run, which is the order in which they become
samples: an event is written down when its question is answered, before its outcome can be known. An answer names the
iteration of its model, and the metrics say how many samples the run had trained by then. So an event is known to an
answer if fewer outcomes came before its own than that.
"""
import glob
import os
import struct

import numpy as np

SEGMENT, FRAME = struct.Struct("<QIIQII"), struct.Struct("<IIQIIQQQQ")  # heads, as runtime/live/rt_segment.h has them
FRAME_MAGIC = 0x4d415246


class Kept:
    """Names of the outcomes of a journal, in their order, each once: read while segments are there."""

    def __init__(self, folder):
        self.folder, self.file, self.path, self.at = folder, None, None, 0
        self.ranks = {}  # name -> how many came before it

    def poll(self):
        while self.take_segment():
            if not self.next_segment():
                return

    def next_segment(self):
        """Whether there is another one than that which was read to its present end."""
        later = [path for path in sorted(glob.glob(os.path.join(glob.escape(self.folder), "*.seg")))
                 if self.path is None or path > self.path]
        if not later:
            return False
        if self.file:
            self.take_frames()  # what came between the last look and the next segment
            self.file.close()
        self.path, self.file, self.at = later[0], open(later[0], "rb"), 0
        return True

    def take_segment(self):
        if self.file is None and not self.next_segment():
            return False
        if self.at == 0:
            self.file.seek(0)
            head = self.file.read(SEGMENT.size)
            if len(head) < SEGMENT.size:
                return False
            self.at = SEGMENT.unpack(head)[2]
        self.take_frames()
        return True

    def take_frames(self):
        self.file.seek(self.at)
        block, at = self.file.read(), 0
        while len(block) - at >= FRAME.size:
            magic, size, _, _, note, *_ = FRAME.unpack_from(block, at)
            if magic != FRAME_MAGIC or len(block) - at - FRAME.size < size:
                break  # it is being written
            lines = block[at + FRAME.size + note:at + FRAME.size + size]
            for line in lines.decode("ascii").splitlines():
                self.ranks.setdefault(line.partition(",")[0], len(self.ranks))
            at += FRAME.size + size
        self.at += at


class Said:
    """What a shop says of its questions, as arrays. first: of each question's events."""

    def __init__(self, paths, chunk):
        self.chunk, rows, self.predictions = chunk, [], []
        for shop, path in enumerate(paths):
            with open(path, encoding="ascii") as file:
                for line in file:
                    if line.endswith("\n"):
                        first, due, answered, kept, who, iteration, *said = line.split()
                        rows.append((int(first), float(due), float(answered), float(kept), who == "hub", who == "own",
                                     int(iteration), shop))
                        self.predictions.append([float(p) for p in said])
        table = np.array(rows, np.float64).reshape(-1, 8)
        self.first, self.due, self.answered, self.kept = table[:, 0].astype(np.int64), *table[:, 1:4].T
        self.hub, self.own, self.iteration = table[:, 4] > 0, table[:, 5] > 0, table[:, 6].astype(np.int64)
        self.shop = table[:, 7].astype(np.int64)

    def latencies(self, begin, end):
        """Seconds from when they were due, of the questions of a time; inf: the hub did not answer."""
        some = (self.due >= begin) & (self.due < end)
        return np.where(self.hub, self.answered - self.due, np.inf)[some]


def samples_by_iteration(history):
    """Iteration -> samples that were trained up to it. history: of a course."""
    return {number: first + count for number, (first, count) in history.items()}


def freshness(said, ranks, trained):
    """(kept, seconds) of every event that was kept, in the order of said; inf: no answer knows it. ranks: of Kept;
    trained: of samples_by_iteration."""
    hub = np.flatnonzero(said.hub)
    hub = hub[np.argsort(said.answered[hub])]
    knows = np.maximum.accumulate(np.array([trained.get(int(i), 0) for i in said.iteration[hub]] or [0]))
    times = np.append(said.answered[hub] if len(hub) else [np.inf], np.inf)
    rank = np.array([[ranks.get("%d.%d" % (first, k), 1 << 60) for k in range(said.chunk)] for first in said.first],
                    np.int64).reshape(-1, said.chunk)
    found = times[np.searchsorted(knows, rank, side="right")]
    kept = np.repeat(said.kept, said.chunk).reshape(rank.shape)
    return kept.ravel(), (found - kept).ravel()


def quantile(values, share):
    """inf counts as the largest; None: there are none."""
    if not len(values):
        return None
    return float(np.sort(values)[min(len(values) - 1, int(share * len(values)))])
