#!/usr/bin/python3
"""shards.py - the rival in PyTorch: tests/lan/rival.py on the events of a proof, from yesterday's model on.

usage: shards.py FOLDER RANK RANKS MASTER THREADS BATCH BATCHES

Tables are sharded over the boxes, with one process in each, and gloo goes over the same links. The optimizer is Adagrad
with one accumulator a row, as in the run. BATCHES 0: all. FOLDER has what rivals.py prepared: numbered ids, keys, and
the rows of yesterday's model.
Every rank writes its predictions before training to FOLDER/predictions-RANK.npy and prints a line of JSON.
"""
import datetime
import importlib.machinery
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "bench"))
import train_reference as reference  # noqa: E402 (sets up the BLAS before torch is there)
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed  # noqa: E402

ROW_RATE, DENSE_RATE, EPSILON = 0.05, 0.005, 1e-10  # of the proof's configuration, and its defaults
PEER_S, PORT = 60, 29411
rival = importlib.machinery.SourceFileLoader("rival", os.path.join(ROOT, "tests", "lan", "rival.py")).load_module()


class Tower(torch.nn.Module):
    """wdl without dense features, deep_input all."""

    def __init__(self, weights):
        super().__init__()
        self.layers = torch.nn.ParameterList()
        at = 0
        while "mlp.%d.weight" % at in weights:
            self.layers += [torch.nn.Parameter(torch.from_numpy(weights["mlp.%d.%s" % (at, one)].copy()))
                            for one in ("weight", "bias")]
            at += 1
        self.layers += [torch.nn.Parameter(torch.from_numpy(weights["output." + one].copy()))
                        for one in ("weight", "bias")]

    def forward(self, embeddings, _dense):
        flat = h = embeddings.flatten(1)
        for at in range(0, len(self.layers) - 2, 2):
            h = torch.relu(h @ self.layers[at].T + self.layers[at + 1])
        return (torch.cat([h, flat], 1) @ self.layers[-2].T + self.layers[-1])[:, 0]


class Shard(rival.Worker):
    """One of `ranks` processes, with its rows and the squares of their gradients."""

    def __init__(self, folder, rank, ranks, batch, batches):
        self.torch, self.rank, self.ranks = torch, rank, ranks
        held = np.load(os.path.join(folder, "events.npz"))
        own = slice(rank, None, ranks)
        known = np.load(os.path.join(folder, "known.npy"))[own]
        self.values, self.squares = (
            torch.from_numpy(np.load(os.path.join(folder, name), mmap_mode="r")[own].copy())
            for name in ("values.npy", "squares.npy"))
        self.dim = self.values.shape[1]
        fresh = np.flatnonzero(~known)
        for at in range(0, len(fresh), 4096):  # what making rows takes besides stays small
            some = fresh[at:at + 4096]
            self.values[some] = torch.from_numpy(
                reference.initial_values.rows(held["keys"][own][some], 1, 0.01, self.dim))
            self.squares[some] = 0
        self.model = Tower(np.load(os.path.join(folder, "dense.npz")))
        self.dense_squares, self.predicted = {}, []
        self.batches = self.share_out(held["ids"], held["labels"], batch, batches)

    def share_out(self, ids, labels, batch, batches):
        rival.BATCH = batch // self.ranks * self.ranks
        count = min(len(labels) // rival.BATCH, batches or len(labels)) * rival.BATCH
        return self.cut(reference, labels[:count].astype(np.float32), np.zeros((count, 0), np.float32), ids[:count])

    def forward(self, lookups, taken, dense):
        logits = super().forward(lookups, taken, dense)
        self.last = logits.detach()
        return logits

    def update(self, owned, gradients):
        rows, place = torch.unique(owned, return_inverse=True)
        summed = gradients.new_zeros((len(rows), self.dim)).index_add_(0, place, gradients)
        squares = self.squares[rows] + (summed * summed).mean(1, keepdim=True)
        self.squares[rows] = squares
        self.values[rows] -= ROW_RATE * summed / (squares.sqrt() + EPSILON)

    def update_dense(self, weight, gradient):
        squares = self.dense_squares.setdefault(id(weight), torch.zeros_like(weight))
        squares += gradient * gradient
        weight -= DENSE_RATE * gradient / (squares.sqrt() + EPSILON)

    def run(self):
        """Seconds of all batches; the predictions before training are in `predicted`."""
        self.torch.distributed.barrier()
        begin = time.perf_counter()
        for batch in self.batches:
            self.step(batch, False)
            self.predicted.append(torch.sigmoid(self.last).numpy())
        self.torch.distributed.barrier()
        return time.perf_counter() - begin


def main():
    folder, rank, ranks, master = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    threads, batch, batches = map(int, sys.argv[5:8])
    torch.set_num_threads(threads)
    torch.distributed.init_process_group("gloo", init_method="tcp://%s:%d" % (master, PORT), rank=rank,
                                         world_size=ranks, timeout=datetime.timedelta(seconds=PEER_S))
    worker = Shard(folder, rank, ranks, batch, batches)
    seconds = worker.run()
    np.save(os.path.join(folder, "predictions-%d.npy" % rank), np.array(worker.predicted))
    print(json.dumps({"seconds": seconds, "batches": len(worker.batches)}), flush=True)


if __name__ == "__main__":
    main()
