"""What the tests of this folder share: commands that must succeed, what ends a case, and its tally."""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FACTOR = int(os.environ.get("TEST_LIMIT_FACTOR", "1"))
LIMIT_S = 150 * FACTOR


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def expect(good, text):
    if not good:
        raise Failed(text)


def run(*command, status=0, limit_s=LIMIT_S, **options):
    """What it prints, in the root of the tree; another exit status fails the case."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, cwd=ROOT, **options)
    said = done.stdout + done.stderr
    expect(done.returncode == status, f"{' '.join(command)[-300:]}: status {done.returncode}\n{said[-3000:]}")
    return done.stdout


def make(*arguments):
    """The job server of an outer make is not passed on; its variables are (NVCC= and the like)."""
    flags = re.sub(r"--jobserver-[a-z]+=\S*|(^| )-j\d*", "", os.environ.get("MAKEFLAGS", ""))
    return run("make", *arguments, env={**os.environ, "MAKEFLAGS": flags})


class Tally:
    """Says how each case ended, as test programs do."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def skip(self, name, reason):
        print(f"skip {name}\n    {reason}", flush=True)
        self.skipped += 1

    def take(self, name, case, *arguments):
        """Runs a case: (what it returned, None), or (None, why there is nothing)."""
        try:
            result = case(*arguments)
        except Skipped as reason:
            self.skip(name, reason)
            return None, reason
        except (Failed, subprocess.TimeoutExpired) as error:
            print(f"FAIL {name}\n    {error}", flush=True)
            self.failed += 1
            return None, f"{name} failed"
        print("pass", name, flush=True)
        self.passed += 1
        return result, None

    def close(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return self.failed > 0
