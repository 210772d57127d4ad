#!/usr/bin/python3
"""What a PyTorch user would run on the LAN of tests/lan/race: tables sharded over the workers.

    tests/lan/rival.py [--boxes 8,4] [--dim 512] [--runs 3] [--iterations 15] [--data FILE] [--document FILE]

TorchRec's row-wise sharding, written out in plain PyTorch over gloo: every worker owns the rows
whose number is its rank modulo the number of workers. Per iteration a worker asks the owners for
the distinct rows of its samples (all-to-all of ids), gets the vectors (all-to-all), computes, sends
back the gradients of these rows (all-to-all), and the owners add and step; dense gradients are
all-reduced. There is no parameter server and no cache. The model, the batches, the optimizer and
the initial values are those of tests/lan/race.json: a run is synchronous, so its log loss is that of
one process, whatever the number of boxes (the last column shows it).

Boxes: the first half has --fast, the second --slow Mbit/s each way; "--boxes 8,4" runs all eight,
then the four fast ones alone. 15 iterations of warm-up, then --iterations that count. Ids are
numbered and the distinct ones of every batch found before the clock starts, as in the other
comparisons. Needs python3-torch, and the rights of tests/lan/lan.sh (exit status 77 without).
"""
import argparse
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LAN = os.path.join(HERE, "lan.sh")
WARMUP, BATCH, PORT = 15, 1024, 29411
RATE = 0.1  # race.json: SGD for rows and dense weights


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = lambda text: [int(one) for one in text.split(",")]
    parser.add_argument("--boxes", type=numbers, default=[8, 4])
    parser.add_argument("--dim", type=numbers, default=[512])
    parser.add_argument("--fast", type=int, default=500)
    parser.add_argument("--slow", type=int, default=50)
    parser.add_argument("--document", default=None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--data", default=None)
    parser.add_argument("--rank", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--master", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    wrong = [one for one in options.boxes if one < 1 or one > 8 or BATCH % one]
    if wrong:
        parser.error("--boxes: %d: expected 1, 2, 4 or 8" % wrong[0])
    return options


class Worker:
    """One of `ranks` processes: its rows, its share of every batch, a copy of the dense weights."""

    def __init__(self, options, reference, torch):
        self.torch, self.rank, self.ranks = torch, options.rank, options.boxes[0]
        self.dim = options.dim[0]
        count = BATCH * (WARMUP + options.iterations)
        labels, dense, ids, keys = reference.read(options.data, count, reference.take_criteo)
        self.values = torch.from_numpy(reference.initial_values.rows(
            keys[self.rank::self.ranks], 1, 0.01, self.dim))
        self.model = reference.Wdl(self.dim, [256, 256, 256], "dense")
        self.batches = self.cut(reference, labels, dense, ids)

    def cut(self, reference, labels, dense, ids):
        """Per batch: distinct rows by owner, how many of each owner, look-ups, dense, labels."""
        np, torch, share = reference.np, self.torch, BATCH // self.ranks
        batches, scale = [], reference.Scale()
        for at in range(0, len(labels), BATCH):
            mine = slice(self.rank * share, (self.rank + 1) * share)
            scaled = scale(dense[at:at + BATCH])[mine]
            rows, lookups = np.unique(ids[at:at + BATCH][mine], return_inverse=True)
            by_owner = np.argsort(rows % self.ranks, kind="stable")
            place = np.empty_like(by_owner)
            place[by_owner] = np.arange(len(rows))
            counts = np.bincount(rows % self.ranks, minlength=self.ranks).tolist()
            batches.append((torch.from_numpy(rows[by_owner]), counts,
                            torch.from_numpy(place[lookups].reshape(share, -1)),
                            torch.from_numpy(scaled), torch.from_numpy(labels[at:at + BATCH][mine])))
        return batches

    def swap(self, sent, sent_counts, got_counts):
        """Sends sent_counts[j] rows of `sent` to worker j, returns what all sent here."""
        got = sent.new_empty((sum(got_counts),) + sent.shape[1:])
        self.torch.distributed.all_to_all_single(got, sent.contiguous(), got_counts, sent_counts)
        return got

    def forward(self, lookups, taken, dense):
        return self.model(self.torch.nn.functional.embedding(lookups, taken), dense)

    def start_bias(self, logits, labels):
        """The bias takes the base rate of the first batch, as Lanyard's does."""
        positives = labels.sum()
        self.torch.distributed.all_reduce(positives)
        with self.torch.no_grad():
            self.model.output.bias += self.torch.log((positives + 0.5) / (BATCH - positives + 0.5))

    def step(self, batch, first):
        """Trains one batch; returns the sum of this worker's log losses before training it."""
        torch = self.torch
        rows, counts, lookups, dense, labels = batch
        asked = self.swap(torch.tensor(counts), [1] * self.ranks, [1] * self.ranks).tolist()
        owned = self.swap(rows, counts, asked) // self.ranks
        taken = self.swap(self.values[owned], asked, counts).requires_grad_()
        logits = self.forward(lookups, taken, dense)
        loss_of = torch.nn.BCEWithLogitsLoss(reduction="sum")
        before = float(loss_of(logits, labels).detach())
        if first:
            self.start_bias(logits, labels)
            logits = self.forward(lookups, taken, dense)
        self.model.zero_grad(set_to_none=True)
        (loss_of(logits, labels) / BATCH).backward()
        gradients = self.swap(taken.grad, counts, asked)
        parameters = list(self.model.parameters())
        flat = torch.cat([one.grad.flatten() for one in parameters])
        torch.distributed.all_reduce(flat)
        with torch.no_grad():
            self.update(owned, gradients)
            for one, summed in zip(parameters, flat.split([p.numel() for p in parameters])):
                self.update_dense(one, summed.view_as(one))
        return before

    def update(self, owned, gradients):
        """Rows of this worker with their gradients; a row stands there once for each who trained it."""
        self.values.index_add_(0, owned, gradients, alpha=-RATE)

    def update_dense(self, weight, gradient):
        weight -= RATE * gradient

    def run(self):
        """Iterations per second after the warm-up, and the mean log loss of all samples."""
        losses, begin = 0.0, None
        for number, batch in enumerate(self.batches):
            if number == WARMUP:
                self.torch.distributed.barrier()
                begin = time.perf_counter()
            losses += self.step(batch, number == 0)
        self.torch.distributed.barrier()
        seconds = time.perf_counter() - begin
        total = self.torch.tensor([losses], dtype=self.torch.float64)
        self.torch.distributed.all_reduce(total)
        return ((len(self.batches) - WARMUP) / seconds,
                float(total) / (BATCH * len(self.batches)))


def work(options):
    sys.path.insert(0, os.path.join(ROOT, "tests", "bench"))
    import train_reference as reference  # sets up the BLAS before torch is there
    import torch
    import torch.distributed
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method="tcp://%s:%d" % (options.master, PORT), rank=options.rank,
        world_size=options.boxes[0])
    rate, loss = Worker(options, reference, torch).run()
    if options.rank == 0:
        print(json.dumps({"rate": rate, "log_loss": loss}))


def run_once(options, boxes, dim):
    master = subprocess.check_output([LAN, "address", "w0"], text=True).strip()
    environment = dict(os.environ, GLOO_SOCKET_IFNAME="eth0", PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, os.path.abspath(__file__), "--boxes", str(boxes), "--dim", str(dim),
               "--iterations", str(options.iterations), "--data", options.data,
               "--master", master]
    processes = [subprocess.Popen([LAN, "in", "w%d" % rank] + command + ["--rank", str(rank)],
                                  env=environment, stdout=subprocess.PIPE, text=True)
                 for rank in range(boxes)]
    try:
        answers = [one.communicate(timeout=600)[0] for one in processes]
    finally:
        for one in processes:
            one.kill()
    if any(one.returncode for one in processes):
        raise SystemExit("rival: a worker failed")
    return json.loads(answers[0])


def main():
    options = arguments()
    if options.rank is not None:
        work(options)
        return
    if not os.path.exists("/run/lanyard-lan"):
        boxes = ["w%d=%d" % (one, options.fast if one < 4 else options.slow) for one in range(8)]
        os.execv(LAN, [LAN, "with"] + boxes + ["--", sys.executable, __file__] + sys.argv[1:])
    sys.path.insert(0, HERE)
    import importlib.machinery
    race = importlib.machinery.SourceFileLoader("race", os.path.join(HERE, "race")).load_module()
    options.data = race.find_data(options.data)
    if not options.data:
        raise SystemExit("rival: no real rows here (--data FILE, or LANYARD_DATA)")
    for box in range(8):
        subprocess.check_call([LAN, "show", "w%d" % box, options.data])
    lines = ["%s, %d cores, `%s`, PyTorch over gloo, median of %d runs." % (
        race.datetime.date.today(), os.cpu_count(), " ".join(["tests/lan/rival.py"] + sys.argv[1:]), options.runs), "",
             "| boxes | dim | iterations/s (least - most) | log loss |", "|---|---|---|---|"]
    for dim in options.dim:
        for boxes in options.boxes:
            runs = [run_once(options, boxes, dim) for _ in range(options.runs)]
            lines.append("| %d (%d at %d, %d at %d Mbit/s) | %d | %s | %.6f |" % (
                boxes, min(boxes, 4), options.fast, max(0, boxes - 4), options.slow, dim,
                race.speed(runs), runs[0]["log_loss"]))
            print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.document:
        race.document(options.document, text, race.BEGIN % " rival", race.END % " rival")


if __name__ == "__main__":
    main()
