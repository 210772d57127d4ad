"""result - what came of a proof: judged, as a table, and drawn. Also for who has no rights to run one.

A result is a dictionary (prove.json): date, settings, marks, count, first (events before it only warmed up), systems.
A system has a title and, where they were measured, served (mean log loss of what was served), before (of predictions
before training), samples_per_s, megabytes, lost, own (events that a box's own server answered), age_p50_s and age_p90_s
(of the models that the hub answered with), memory (MB of the fullest box) and curve, or the reason why it was not
run.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../bench"))
from svg import line_at, picture, spread, text_at  # noqa: E402

POINTS = 40
KEPT = ("samples_per_s", "lost", "untrained", "unserved", "own", "age_p50_s", "age_p90_s", "starts", "killed",
        "trained", "seconds", "join")
TRAINING = ("train", "train8", "torch", "trainone")
TITLES = {"train": "Lanyard, four workers and two shards", "train8": "the same, int8 on the links",
          "trainone": "Lanyard, one box, its table on disk",
          "lanyard": "Lanyard, five boxes", "one": "Lanyard, one box, its table on disk",
          "torch": "PyTorch, tables sharded",
          "vw": "Vowpal Wabbit, one box", "yesterday": "yesterday's model", "base": "base rate",
          "truth": "the truth that labels were drawn by"}
COLOURS = {"lanyard": "#1f6fb4", "one": "#e08a1e", "torch": "#c0392b", "vw": "#7d5ba6", "yesterday": "#888888",
           "base": "#bbbbbb", "truth": "#2e8b57"}
SERVES = ("lanyard", "one", "yesterday", "base", "truth")
WIDTH, LEFT, RIGHT, TOP, HEIGHT = 760, 50, 210, 66, 220
BAR_LEFT, BAR_STEP = 270, 20


def judge(options, found, today):
    import datetime

    import numpy as np

    import events
    trained = {name: found.pop(name) for name in TRAINING if name in found}
    count = max([one["events"] for one in found.values() if one.get("events")] or [len(today)])
    first = max([one["served_from"] or 0 for one in found.values() if "served_from" in one] or [0])
    labels, floor = today.labels[:count], events.base_rate(today.labels[:count])
    found = dict(found, base={"predictions": floor.tolist()})
    if today.truth is not None:
        found["truth"] = {"predictions": today.truth[:count].tolist()}
    systems = {}
    for name, run in found.items():
        one = systems[name] = {"title": TITLES[name]}
        if "reason" in run:
            one["reason"] = run["reason"]
            continue
        over = min(count, run.get("events") or count)
        said = run["predictions"][:over]
        losses = events.log_losses(labels[:over], [floor[at] if p is None else p for at, p in enumerate(said)])[first:]
        one["served" if name in SERVES else "before"] = float(losses.mean())
        points = max(1, round(min(POINTS, count - first) * len(losses) / (count - first)))
        one["curve"] = [float(part.mean()) for part in np.array_split(losses, points)]
        if over < count:
            one["over"] = over
        had_one = np.array([p is not None for p in said[first:]])
        if name in SERVES and had_one.any():
            one["answered"] = float(losses[had_one].mean())
        if "log_loss_before_training" in run:
            one["before"] = run["log_loss_before_training"]
        one.update((key, run[key]) for key in KEPT if key in run)
        if "bytes" in run:
            one["megabytes"] = run["bytes"] / 1e6
        if "memory" in run:
            one["memory"] = max(run["memory"].values()) / 1e6
            one["limit"] = run.get("limit", options.memory * 1e6) / 1e6
    return {"date": str(datetime.date.today()), "cores": os.cpu_count(), "load": options.load,
            "quick": options.quick, "rows": options.data and os.path.basename(options.data), "count": count,
            "first": first, "yesterday": options.yesterday, "table": options.table_bytes / 1e6,
            "memory": options.memory,
            "limits": options.limits.reason or "", "fast": options.fast, "slow": options.slow,
            "training": train_table_of(trained, options),
            "marks": found.get("lanyard", {}).get("notes", []), "systems": systems}


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
    run = one["systems"].get("lanyard", {})
    if "reason" in run:
        return run["reason"]
    if run.get("lost") is None and "trained" in run:
        return "%d samples were not trained in time" % run["untrained"]
    return "%d samples lost" % run["lost"] if run.get("lost") else ""


def cell(run, key, text):
    return text % run[key] if run.get(key) is not None else "-"


COLUMNS = [("log loss, served", "served", "%.4f"), ("where answered", "answered", "%.4f"),
           ("before training", "before", "%.4f"),
           ("samples/s", "samples_per_s", "%.0f"), ("MB over the links", "megabytes", "%.0f"),
           ("samples lost", "lost", "%d"), ("not answered", "unserved", "%d"), ("by the box itself", "own", "%d"),
           ("age of the hub's model, median s", "age_p50_s", "%.1f"), ("p90 s", "age_p90_s", "%.1f"),
           ("memory of the fullest box, MB", "memory", "%.0f")]


def rows_of(one, columns):
    lines = ["| | %s |" % " | ".join(title for title, _, _ in columns), "|---" * (len(columns) + 1) + "|"]
    for run in one["systems"].values():
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
    runs = one.get("training") or {}
    if not runs:
        return ""
    lines = rows_of({"systems": runs}, TRAIN_COLUMNS)
    causes = sorted({name for run in runs.values() for name in run.get("causes", {})})
    told = {run["title"]: run["causes"] for run in runs.values() if run.get("causes")}
    if told:
        lines += ["", "| bytes a sample, by cause | %s |" % " | ".join(told), "|---" * (len(told) + 1) + "|"]
        for name in causes:
            cells = " | ".join("%.0f" % one.get(name, 0) for one in told.values())
            lines.append("| %s | %s |" % (name.replace("_", " "), cells))
    for tuning, rate in runs.get("torch", {}).get("tried", []):
        lines += ["", "PyTorch, threads %d, batches of %d: %.0f samples/s on the first batches." % (*tuning, rate)]
    return "\n".join(lines) + "\n\n"


def circumstances(one):
    marks = "; ".join("%s after %d events" % (mark["text"], mark["at"]) for mark in one["marks"])
    limits = "%d MB of memory each" % one["memory"] if not one["limits"] else "no bound of memory (%s)" % one["limits"]
    return ("%s, %d cores, load %.1f before, `make prove%s`: %d events of today after %d of yesterday (%s), the first "
            "%d warm up. Boxes: three with %d, two with %d Mbit/s, %s; yesterday's table has %.0f MB. %s." %
            (one["date"], one["cores"], one["load"], " QUICK=1" if one["quick"] else "", one["count"], one["yesterday"],
             one["rows"] or "generated", one["first"], one["fast"], one["slow"], limits, one["table"],
             marks[:1].upper() + marks[1:] or "Nothing was pulled"))


def late(one):
    """Who was not done in time, and who ended for want of memory."""
    for run in one["systems"].values():
        if run.get("over"):
            yield "%s: log loss over the first %d events, it came no further." % (run["title"], run["over"])
        if run.get("untrained") and run.get("lost") is None:
            yield "%s: when the time was over %d events were kept and not trained yet." % (run["title"],
                                                                                           run["untrained"])
        if run.get("killed"):
            yield "%s: %d processes ended for want of memory, and were started again." % (run["title"], run["killed"])


def table(one):
    lines = [circumstances(one), ""] + rows_of(one, COLUMNS) + [""] + list(late(one))
    return train_table(one) + "\n".join(lines).rstrip("\n") + "\n"


# ---- the picture

def draw_curves(one, out):
    curves = {name: run["curve"] for name, run in one["systems"].items() if "curve" in run}
    values = [value for curve in curves.values() for value in curve]
    low, high = int(min(values) * 20) / 20, int(max(values) * 20 + 1) / 20
    y_of = lambda value: TOP + HEIGHT * (high - value) / (high - low)
    x_of = lambda share: LEFT + (WIDTH - LEFT - RIGHT) * share
    steps = round((high - low) * 20)
    for i in range(steps + 1):
        value = low + i / 20
        out += [line_at(LEFT, y_of(value), WIDTH - RIGHT, y_of(value), "#dddddd"),
                text_at(LEFT - 6, y_of(value) + 4, "%.2f" % value, ' text-anchor="end" fill="#555555"')]
    for number, mark in enumerate(mark for mark in one["marks"] if mark["at"] <= one["count"]):
        x = x_of(max(0, mark["at"] - one["first"]) / max(1, one["count"] - one["first"]))
        out += [line_at(x, TOP - 4, x, TOP + HEIGHT, "#000000", ' stroke-dasharray="3 3"'),
                text_at(x + 3, TOP - 6 + 11 * (number % 3), mark["text"], ' fill="#000000" font-size="11"')]
    names, longest = list(curves), max(len(curve) for curve in curves.values())
    places = spread([y_of(curves[name][-1]) for name in names], 15)
    for name, y in zip(names, places):
        last = max(1, longest - 1)
        points = " ".join("%.1f,%.1f" % (x_of(i / last), y_of(value)) for i, value in enumerate(curves[name]))
        dashes = "" if name in SERVES else ' stroke-dasharray="6 3"'
        out += ['<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>' % (points, COLOURS[name], dashes),
                text_at(WIDTH - RIGHT + 8, y + 4, TITLES[name] if name != "truth" else "the truth",
                        ' fill="%s" font-size="12"' % COLOURS[name])]


def draw_bars(one, out, top, key, title, text):
    runs = [(name, run) for name, run in one["systems"].items() if name not in ("base", "truth", "yesterday")]
    most = max([run[key] for _, run in runs if run.get(key)] or [1])
    out.append(text_at(12, top, title))
    for number, (name, run) in enumerate(runs):
        y = top + 8 + BAR_STEP * number
        value = run.get(key)
        width = (WIDTH - BAR_LEFT - 110) * (value or 0) / most
        out += [text_at(BAR_LEFT - 8, y + 12, TITLES[name], ' text-anchor="end" font-size="12"'),
                '<rect x="%d" y="%.1f" width="%.1f" height="14" fill="%s"/>' % (BAR_LEFT, y, width, COLOURS[name]),
                text_at(BAR_LEFT + width + 6, y + 12, "not run" if value is None else text % value, ' font-size="12"')]
    return top + 8 + BAR_STEP * len(runs) + 22


def draw(one):
    out = [text_at(12, 22, "Log loss of what was served (dashed: predicted before training, by who serves nothing)",
                   ' font-size="15"'),
           text_at(12, 42, "%d events over five boxes, table %.1f times the memory of a box" %
                   (one["count"], one["table"] / one["memory"]), ' fill="#555555"')]
    draw_curves(one, out)
    bottom = draw_bars(one, out, TOP + HEIGHT + 30, "samples_per_s", "samples/s", "%.0f")
    bottom = draw_bars(one, out, bottom, "megabytes", "MB over the links", "%.0f")
    return picture(WIDTH, bottom - 10, out)
