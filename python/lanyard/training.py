"""A run of the program `lanyard` beside this process, on rows that are handed to its standard input.

It is looked for where LANYARD_PROGRAM says, in this package, in the tree that this package stands in, and in PATH.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping

from .weights import sources_of

GUESS_ROWS = 10000  # that `lanyard init -` looks at
CHUNK_ROWS = 4096
NAME_MAX = 64  # bytes of a column's name and its end


class TrainingError(RuntimeError):
    """The program could not train; the message is what it said."""


def program():
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("LANYARD_PROGRAM")
    places = [named] if named else [f"{here}/bin/lanyard", f"{here}/../../build/lanyard", shutil.which("lanyard")]
    for place in places:
        if place and os.access(place, os.X_OK):
            return os.path.abspath(place)
    raise ImportError(f"the program lanyard, which trains, is not there (looked at {', '.join(filter(None, places))}; "
                      "LANYARD_PROGRAM may name it)")


def quoted(text):
    """A cell between commas, as RFC 4180 has it."""
    if text and not any(sign in text for sign in ',"\n\r'):
        return text
    return '"' + text.replace('"', '""') + '"' if text else ""


def lines_of(columns):
    """Lines of a table, of columns of cells."""
    ready = [column if all(map(str.isalnum, column)) else list(map(quoted, column)) for column in columns]
    return [",".join(cells) + "\n" for cells in zip(*ready)]


def _reasons(log):
    """What a log says of a failure: its errors, without the process that said them; else its end."""
    lines = log.splitlines()
    errors = [line.split("error: ", 1)[1].removeprefix("config.json: ") for line in lines if "error: " in line]
    return "; ".join(dict.fromkeys(errors)) or "\n".join(lines[-5:])


def guess(names, columns, label):
    """The columns of a configuration for a table, as `lanyard init` proposes them. Raises ValueError."""
    # A name that begins with no letter could be taken for a cell, and the first line then for no header.
    # One that is too long for a configuration would be left out; this way the run says so.
    known = {name if name[:1].isalpha() and len(name.encode()) < NAME_MAX else f"column {i}": name
             for i, name in enumerate(names)}
    text = "".join(lines_of([[name] + column[:GUESS_ROWS] for name, column in zip(known, columns)]))
    done = subprocess.run([program(), "init", "-", "--label", label], input=text.encode(), capture_output=True,
                          check=False)
    if done.returncode:
        raise ValueError(f"the kinds of the columns cannot be guessed ({_reasons(done.stderr.decode())}): "
                         "say them with kinds")
    guessed = json.loads(done.stdout)["stream"]["table"]["columns"]
    for column in guessed:
        column["name"] = known.get(column["name"], column["name"])
        if "from" in column:
            column["from"] = [known.get(name, name) for name in sources_of(column)]
    return guessed


def put(config, path, value):
    """One key of a configuration, by its path with dots."""
    *sections, key = path.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    if isinstance(value, Mapping):
        for inner in value:
            put(config, f"{key}.{inner}", value[inner])
    else:
        config[key] = value


class Home:
    """A folder of a run, which goes when nothing refers to it any longer."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="lanyard-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def train(folder, config, lines, goes_on, is_shown):
    """Trains lines, an iterable of lists of them. folder/out has what a run leaves: model/, summary.json and the
    checkpoint from which another call goes on. Returns the summary. Raises TrainingError, ValueError."""
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    command = [program(), "up", "config.json", "--out", "out"] + (["--resume"] if goes_on else [])
    with tempfile.TemporaryFile() as log:
        # A session of its own: Ctrl-C is Python's to handle.
        child = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log,
                                 start_new_session=True)
        try:
            _feed(child.stdin, lines)
            child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
        log.seek(0)
        said = log.read().decode(errors="replace")
    if is_shown:
        print(said, end="", file=sys.stderr)
    if child.returncode:
        raise TrainingError(_reasons(said))
    with open(f"{folder}/out/summary.json", encoding="utf-8") as file:
        return json.load(file)


def _feed(pipe, chunks):
    try:
        with pipe:
            for chunk in chunks:
                pipe.write("".join(chunk).encode())
    except BrokenPipeError:
        pass  # it has ended, and its log says why
