"""Copies of the repository that mutations are tried in: copies, builds, runs of tests, which test runs which line."""
import glob
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time

STOP_S = 15  # that a test has to end what it started
# Forked copies of a process end by _exit, which tells gcov nothing.
EXIT = """void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) { __gcov_dump(); __real__exit(status); }
"""


def files_of(root: str) -> list:
    """Tracked files, and new ones that git does not ignore."""
    out = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"], check=True,
                         capture_output=True).stdout
    return sorted(name for name in os.fsdecode(out).split("\0") if name and os.path.isfile(os.path.join(root, name)))


def copy_tree(root: str, to: str) -> None:
    """Makes `to` hold what root does, changing only what differs."""
    names = files_of(root)
    for name in names:
        source, target = os.path.join(root, name), os.path.join(to, name)
        with open(source, "rb") as file:
            content = file.read()
        try:
            with open(target, "rb") as file:
                if file.read() == content:
                    continue
        except OSError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(source, target)
    kept = {os.path.join(to, name) for name in names}
    for folder, folders, files in os.walk(to):
        folders[:] = [one for one in folders if os.path.join(folder, one) != os.path.join(to, "build")]
        for path in (os.path.join(folder, one) for one in files):
            if path not in kept:
                os.remove(path)


def coverage_cc(cc: str, folder: str) -> str:
    """A compiler for coverage, of forked copies too; folder holds what it needs for that."""
    source, library = os.path.join(folder, "exit.c"), os.path.join(folder, "libmutate_exit.a")
    if not os.path.exists(library):
        with open(source, "w", encoding="utf-8") as file:
            file.write(EXIT)
        subprocess.run([*cc.split(), "-O2", "-fPIC", "-c", source, "-o", source[:-2] + ".o"], check=True)
        subprocess.run(["ar", "rcs", library, source[:-2] + ".o"], check=True)
    return "%s --coverage -Wl,--wrap=_exit,-u,__wrap__exit -L%s -lmutate_exit" % (cc, folder)


def end_group(process: subprocess.Popen) -> None:
    """Asks a test to end what it started, then ends all that is left."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Tree:
    def __init__(self, path: str, cc: str, jobs: int):
        self.path, self.cc, self.jobs = path, cc, jobs

    def make(self, *targets: str) -> tuple:
        """(it worked, what it said)."""
        env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        command = ["make", "-s", "-j%d" % self.jobs, "CC=" + self.cc, "NVCC=", "WARNINGS=-w", *targets]
        done = subprocess.run(command, cwd=self.path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace")
        return done.returncode == 0, done.stdout

    def code_of(self, source: str) -> bytes:
        """The machine code of a source, without what depends on lines and names of files."""
        with tempfile.NamedTemporaryFile(suffix=".o") as bare:
            subprocess.run(["objcopy", "--strip-debug", os.path.join(self.path, object_of(source)), bare.name],
                           check=True)
            with open(bare.name, "rb") as file:
                return file.read()

    def run(self, test: str, limit_s: float, extra: dict = {}) -> str:
        """Runs a test binary up to its first case that fails, which it returns; "" if all pass."""
        env = dict(os.environ, LANYARD="build/lanyard", **extra)
        env.setdefault("LANYARD_DATA", os.path.join(self.path, "../../../../shared/data"))
        process = subprocess.Popen([os.path.join(self.path, test)], cwd=self.path, env=env, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        lines: queue.Queue = queue.Queue()

        def read() -> None:
            for line in process.stdout:
                lines.put(line)
            lines.put(None)
        threading.Thread(target=read, daemon=True).start()
        end = time.monotonic() + limit_s
        failed, last = "", ""
        try:
            while not failed:
                line = lines.get(timeout=max(end - time.monotonic(), 0.01))
                if line is None:
                    break
                last = line.strip() or last
                if line.startswith("FAIL "):
                    failed = line[5:].strip()
        except queue.Empty:
            failed = "not done after %.0f s" % limit_s
        if failed:
            end_group(process)
            return failed
        if process.wait() == 0:
            return ""
        return "exit status %d: %s" % (process.returncode, last)


def object_of(source: str) -> str:
    return "build/release/" + source[:-2] + ".o"


def binaries(tree: str, pattern: str) -> list:
    found = glob.glob(os.path.join(tree, pattern))
    return sorted("build/release/" + os.path.relpath(path, tree)[:-2] for path in found)


def lines_run(tree: str, data: str) -> dict:
    """Source -> lines that ran, from what a test left below data."""
    lines: dict = {}
    found = glob.glob(os.path.join(data, "**/*.gcda"), recursive=True)
    for path in found:  # gcov wants both files side by side
        notes = path[len(data):-5] + ".gcno"
        if os.path.exists(notes) and not os.path.exists(path[:-5] + ".gcno"):
            os.symlink(notes, path[:-5] + ".gcno")
    for at in range(0, len(found), 200):
        out = subprocess.run(["gcov", "--json-format", "--stdout", *found[at:at + 200]], cwd=tree,
                             capture_output=True, text=True).stdout
        for one in out.splitlines():
            for file in json.loads(one)["files"] if one.startswith("{") else []:
                ran = {line["line_number"] for line in file["lines"] if line["count"]}
                lines.setdefault(os.path.normpath(file["file"]), set()).update(ran)
    return lines


def hash_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def measure(tree: Tree, tests: list, program: str, known: str, say) -> dict:
    """Runs tests once in a tree built for coverage: {test: {"seconds", "failed", "lines": {source: [line]}, "code"}}.
    The file `known` keeps that of binaries that have not changed since; those below tests/proc run the program."""
    todo: queue.Queue = queue.Queue()
    result, lock = {}, threading.Lock()
    if os.path.exists(known):
        with open(known, encoding="utf-8") as file:
            result = json.load(file)
    codes = {test: hash_of(os.path.join(tree.path, test)) + (program if "/proc/" in test else "") for test in tests}
    others = {test: one for test, one in result.items() if test not in codes}  # not asked for this time
    result = {test: one for test, one in result.items() if codes.get(test) == one["code"]}
    for test in tests:
        if test not in result:
            todo.put(test)

    def work() -> None:
        while True:
            try:
                test = todo.get_nowait()
            except queue.Empty:
                return
            with tempfile.TemporaryDirectory() as data:
                begin = time.monotonic()
                failed = tree.run(test, 1200, {"GCOV_PREFIX": data, "TEST_LIMIT_FACTOR": "8"})
                seconds = time.monotonic() - begin
                lines = {name: sorted(ran) for name, ran in lines_run(tree.path, data).items() if ran}
            with lock:
                result[test] = {"seconds": seconds, "failed": failed, "lines": lines, "code": codes[test]}
                say("%6.1f s  %s%s" % (seconds, test, "  FAILS: " + failed if failed else ""))
    threads = [threading.Thread(target=work) for _ in range(tree.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(known, "w", encoding="utf-8") as file:
        json.dump({**others, **result}, file)
    return result
