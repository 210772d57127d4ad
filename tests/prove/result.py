"""result - what came of a proof: judged, as tables, and drawn. Also for who has no rights to run one.

A result is a dictionary (prove.json) of the parts that were run, each with its settings: training (runs, by name), loop
(steps: what each rate did) and day (marks: what struck whom, and what it cost; losses: mean log loss of everybody, over
the same events). Where something was not run there is a reason.
"""
import datetime
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../bench"))
from svg import line_at, picture, text_at  # noqa: E402

TRAINING = ("train", "train8", "torch", "trainone")
TITLES = {"train": "Lanyard, four workers and two shards", "train8": "the same, int8 on the links",
          "trainone": "Lanyard, one box, its table on disk", "day": "Lanyard, five boxes",
          "torch": "PyTorch, tables sharded", "vw": "Vowpal Wabbit, one box", "yesterday": "yesterday's model",
          "base": "base rate", "truth": "the truth that labels were drawn by"}
SERVES = ("day", "yesterday", "base", "truth")
P50, P99, MARK, GREY = "#1f6fb4", "#e08a1e", "#c0392b", "#555555"
FRESH_S = 2.4  # bound of a rate that holds (loop.py)
PICTURE = "A day of five boxes: seconds from an outcome until an answer knows of it"
WIDTH, LEFT, RIGHT, TOP, HEIGHT = 760, 50, 20, 106, 220


def judge(options, found, today):
    """What is known of each part that was run, with what it was run with: parts can be kept one by one."""
    settings = {"date": str(datetime.date.today()), "cores": os.cpu_count(), "load": options.load,
                "quick": options.quick, "rows": options.data and os.path.basename(options.data), "yesterday": options.yesterday,
                "table": options.table_bytes / 1e6, "memory": options.memory, "limits": options.limits.reason or "",
                "fast": options.fast, "slow": options.slow}
    one = {name: {key: value for key, value in found[name].items() if key not in ("at", "predictions")}
           for name in ("loop", "day") if name in found}
    trained = {name: found[name] for name in TRAINING if name in found}
    if trained:
        one["training"] = {"runs": train_table_of(trained, options)}
    for name, part in one.items():
        part["settings"] = dict(settings, memory=memory_of(name, options))
        if "memory" in part:
            part["memory"] = max(part["memory"].values()) / 1e6
    if "at" in found.get("day", {}):
        one["day"]["losses"] = losses_of(found, today)
    return one


def memory_of(name, options):
    """MB of a box in a part, or in a run of it."""
    return options.live_memory if name in ("loop", "day") else options.memory


def losses_of(found, today):
    """Of everybody, over the events that were asked in the day; who has no answer knows the base rate."""
    import numpy as np

    import events
    at = np.array(found["day"]["at"])
    labels, floor = today.labels[at], events.base_rate(today.labels)[at]
    all_said = {"day": found["day"]["predictions"]}
    for name in ("vw", "yesterday"):
        if "predictions" in found.get(name, {}):
            all_said[name] = np.array(found[name]["predictions"])[at]
    all_said["base"] = floor
    if today.truth is not None:
        all_said["truth"] = today.truth[at]
    losses = {}
    for name, said in all_said.items():
        filled = np.array([base if p is None else p for p, base in zip(said, floor)], np.float64)
        some = events.log_losses(labels, filled)
        had_one = np.array([p is not None for p in said])
        losses[name] = {"title": TITLES[name], "served" if name in SERVES else "before": float(some.mean())}
        if name == "day":
            losses[name].update(before=found["day"]["before"], answered=float(some[had_one].mean()))
    for name in ("vw", "yesterday"):
        if "reason" in found.get(name, {}):
            losses[name] = {"title": TITLES[name], "reason": found[name]["reason"]}
    return losses


def train_table_of(trained, options):
    """Of each run of the part that trains alone, without its predictions; how it compares with PyTorch."""
    rival = trained.get("torch", {})
    rows = {}
    for name, run in trained.items():
        one = rows[name] = dict(run, title=TITLES[name])
        if "memory" in run:
            one["memory"] = max(run["memory"].values()) / 1e6
            one["limit"] = run.get("limit", options.memory * 1e6) / 1e6
        for key, ratio in (("samples_per_s", "times"), ("link_bytes", "share")):
            if run.get(key) and rival.get(key):
                one[ratio] = run[key] / rival[key]
    return rows


def wrong(one):
    """What no run may end with, else an empty text."""
    for name in ("loop", "day"):
        run = one.get(name, {})
        if "reason" in run:
            return "%s: %s" % (name, run["reason"])
        if run and run["lost"] is None:
            return "%s: %d samples were not trained in time" % (name, run["untrained"])
        if run.get("lost"):
            return "%s: %d samples lost" % (name, run["lost"])
    return ""


def cell(run, key, text):
    return text % run[key] if run.get(key) is not None else "-"


def lines_of(runs, columns, head=""):
    """A table of runs; one with a reason says that."""
    lines = ["| %s | %s |" % (head, " | ".join(title for title, _, _ in columns)), "|---" * (len(columns) + 1) + "|"]
    for run in runs:
        cells = [cell(run, key, text) for _, key, text in columns]
        if "reason" in run:
            cells = ["not run: " + run["reason"].replace("|", "/").replace("\n", " ")[:150]] + [""] * (len(columns) - 1)
        lines.append("| %s | %s |" % (run["title"], " | ".join(cells)))
    return lines


TRAIN_COLUMNS = [("samples/s", "samples_per_s", "%.0f"), ("times PyTorch", "times", "%.2f"),
                 ("bytes a sample over the links", "link_bytes", "%.0f"), ("of PyTorch's", "share", "%.2f"),
                 ("log loss before training", "log_loss", "%.4f"), ("samples", "samples", "%d"),
                 ("memory of the fullest box, MB", "memory", "%.0f"),
                 ("ended for want of memory", "killed", "%d")]


def train_table(one):
    """The runs that train alone, and by what their bytes were caused."""
    if "training" not in one:
        return ""
    runs = one["training"]["runs"]
    lines = ["### Training alone", "", circumstances(one["training"]), ""] + lines_of(runs.values(), TRAIN_COLUMNS)
    causes = sorted({name for run in runs.values() for name in run.get("causes", {})})
    told = {run["title"]: run["causes"] for run in runs.values() if run.get("causes")}
    if told:
        lines += ["", "| bytes a sample, by cause | %s |" % " | ".join(told), "|---" * (len(told) + 1) + "|"]
        for name in causes:
            cells = " | ".join("%.0f" % one.get(name, 0) for one in told.values())
            lines.append("| %s | %s |" % (name.replace("_", " "), cells))
    for tuning, rate in runs.get("torch", {}).get("tried", []):
        lines += ["", "PyTorch, threads %d, batches of %d: %.0f samples/s on the first batches." % (*tuning, rate)]
    return "\n".join(lines) + "\n"


STEP_COLUMNS = [("freshness, median s", "fresh_p50_s", "%.2f"), ("p99 s", "fresh_p99_s", "%.2f"),
                ("answers, median ms", "answer_p50_ms", "%.1f"), ("p99 ms", "answer_p99_ms", "%.1f"),
                ("questions without an answer", "unserved", "%d"), ("behind at its end, events", "backlog", "%d"),
                ("holds", "word", "%s")]


def loop_table(one):
    run = one.get("loop")
    if not run:
        return ""
    head = ["### The loop, open", "", circumstances(run), ""]
    if "reason" in run:
        return "\n".join(head + ["Not run: %s" % run["reason"]]) + "\n"
    steps = [dict(step, title="%.0f" % step["rate"], word="yes" if step["holds"] else "no")
             for step in sorted(run["steps"], key=lambda step: step["rate"])]
    said = ("The highest rate that holds is %.0f events/s." % run["highest"] if run["highest"] else
            "None of these rates holds.")
    if run.get("events_out"):
        said += " There were too few events to try a higher one."
    return "\n".join(head + lines_of(steps, STEP_COLUMNS, "events/s offered") + ["", said + (
        " A dash: it did not come. Lost: %s. %.0f bytes a sample over the links." %
        (cell(run, "lost", "%d"), run["link_bytes"]))]) + "\n"


MARK_COLUMNS = [("after s", "at_s", "%.0f"), ("longest without a trained sample, s", "still_s", "%.1f"),
                ("aim, s", "aim_s", "%.0f"), ("longest that a shop had no answer, s", "silent_s", "%.1f")]
LOSS_COLUMNS = [("log loss, served", "served", "%.4f"), ("where answered", "answered", "%.4f"),
                ("before training", "before", "%.4f")]


def day_table(one):
    run = one.get("day")
    if not run:
        return ""
    lines = ["### A day", "", circumstances(run), ""]
    if "reason" in run:
        return "\n".join(lines + ["Not run: %s" % run["reason"]]) + "\n"
    lines += ["%.0f events/s for %.0f s. Freshness: median %s s, p99 %s s; answers: p99 %s ms. Lost: %s. "
             "%d events got no answer, %d the answer of their own box. %.0f bytes a sample over the links, %.0f MB of "
             "memory in the fullest box, %d processes ended for want of memory." % (
                 run["rate"], run["seconds"], cell(run, "fresh_p50_s", "%.2f"), cell(run, "fresh_p99_s", "%.2f"),
                 cell(run, "answer_p99_ms", "%.0f"), cell(run, "lost", "%d"), run["unserved"], run["own"],
                 run["link_bytes"], run["memory"], run["killed"]), ""]
    lines += lines_of([dict(mark, title=mark["text"]) for mark in run["marks"]], MARK_COLUMNS)
    return "\n".join(lines + [""] + lines_of(run["losses"].values(), LOSS_COLUMNS)) + "\n"


def circumstances(part):
    one = part["settings"]
    limits = "%d MB of memory each" % one["memory"] if not one["limits"] else "no bound of memory (%s)" % one["limits"]
    return ("%s, %d cores, load %.1f before, %s, %s events, %d of them yesterday's. Boxes: three with %d, two with %d "
            "Mbit/s, %s; yesterday's table has %.0f MB." % (
                one["date"], one["cores"], one["load"], "a quick run" if one["quick"] else "full size",
                one["rows"] or "generated", one["yesterday"], one["fast"], one["slow"], limits, one["table"]))


def table(one):
    return "\n".join(part for part in (train_table(one), loop_table(one), day_table(one)) if part)


def short_table(one):
    """For README: training and the loop, a line each, and the day's picture; nothing of a quick run."""
    full = {name: part for name, part in one.items() if not part["settings"]["quick"] and "reason" not in part}
    runs, loop = full.get("training", {}).get("runs", {}), full.get("loop", {})
    rival, lines = runs.get("torch", {}), []
    for name, title in (("train", "training from files"), ("train8", "the same, int8 on the links")):
        if runs.get(name, {}).get("samples_per_s"):
            lines.append("| %s | %.0f samples | %s | %s | %s |" % (
                title, runs[name]["samples_per_s"], cell(rival, "samples_per_s", "%.0f"),
                cell(runs[name], "link_bytes", "%.0f"), cell(rival, "link_bytes", "%.0f")))
    if loop.get("highest"):
        step = next(step for step in loop["steps"] if step["rate"] == loop["highest"])
        lines.append("| asked, answered, joined, trained: new outcomes are in answers after %.1f s (p99), answers take "
                     "%.0f ms (p99) | %.0f events | - | %.0f | - |" % (
                         step["fresh_p99_s"], step["answer_p99_ms"], step["rate"], loop["link_bytes"]))
    if lines:
        cores = next(part for part in (full.get("training"), loop) if part)["settings"]["cores"]
        lines = ["| five boxes that share %d cores | a second | PyTorch, tables sharded | bytes a sample over the links "
                 "| PyTorch |" % cores, "|---|---|---|---|---|"] + lines + [""]
    if full.get("day", {}).get("fresh"):
        lines += ["![%s](docs/results/prove.svg)" % PICTURE, ""]
    if lines:
        lines.append("How it was measured, and what is not fair: [docs/results/prove.md](docs/results/prove.md).")
    return "\n".join(lines) + "\n" if lines else ""


# ---- the picture

def stretches(curve, column):
    """(time, value) of the seconds that follow each other and have a value."""
    found = [[]]
    for point in curve:
        if point[column] is None or (found[-1] and point[0] > found[-1][-1][0] + 1):
            found.append([])
        if point[column] is not None:
            found[-1].append((point[0], point[column]))
    return [some for some in found if some]


def draw(one):
    """Freshness over the day. Where no answer knew of the events of a second there is no line."""
    run = one.get("day", {})
    curve = [point for point in run.get("fresh") or [] if point[1] is not None]
    if not curve:
        return picture(WIDTH, 60, [text_at(12, 30, "A day: not run")])
    high, seconds = max([point[2] or point[1] for point in curve] + [FRESH_S]) * 1.05, run["seconds"]
    y_of = lambda value: TOP + HEIGHT * (1 - value / high)
    x_of = lambda at: LEFT + (WIDTH - LEFT - RIGHT) * min(1, at / seconds)
    out = [text_at(12, 22, "A day of five boxes: seconds from an outcome until an answer knows of it", ' font-size="15"'),
           text_at(12, 42, "%.0f events/s, table %.1f times the memory of a box" % (
               run["rate"], run["settings"]["table"] / run["settings"]["memory"]), ' fill="%s"' % GREY)]
    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50, 100) if high / step <= 8 or step == 100)
    for i in range(int(high / step) + 1):
        out += [line_at(LEFT, y_of(i * step), WIDTH - RIGHT, y_of(i * step), "#dddddd"),
                text_at(LEFT - 6, y_of(i * step) + 4, "%g" % (i * step), ' text-anchor="end" fill="%s"' % GREY)]
    for i in range(0, int(seconds) + 1, 10 if seconds <= 100 else 20):
        out.append(text_at(x_of(i), TOP + HEIGHT + 18, "%d s" % i, ' text-anchor="middle" fill="%s"' % GREY))
    for number, mark in enumerate(run["marks"]):
        x, to_left = x_of(mark["at_s"]), mark["at_s"] > seconds / 2
        out += [line_at(x, TOP - 4, x, TOP + HEIGHT, MARK, ' stroke-dasharray="3 3"'),
                text_at(x + (-3 if to_left else 3), TOP - 10 - 14 * (number % 3), mark["text"],
                        ' fill="%s" font-size="12"%s' % (MARK, ' text-anchor="end"' if to_left else ""))]
    for number, (colour, name) in enumerate(((P99, "p99"), (P50, "median"))):
        for some in stretches(curve, 2 - number):
            points = " ".join("%.1f,%.1f" % (x_of(at), y_of(value)) for at, value in some)
            out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (points, colour))
        out += [text_at(LEFT + 8 + 60 * number, TOP + HEIGHT + 40, name, ' fill="%s"' % colour)]
    return picture(WIDTH, TOP + HEIGHT + 52, out)
