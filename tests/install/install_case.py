"""What the tests of this folder share: commands that must succeed, what ends a case, and its tally."""
import os
import re
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FACTOR = int(os.environ.get("TEST_LIMIT_FACTOR", "1"))
LIMIT_S = 150 * FACTOR
RELEASE, MIRROR = "bookworm", "http://deb.debian.org/debian"


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


class Box:
    """A root folder with /proc and /dev; what runs in it ends with the command, and nothing is left mounted."""

    def __init__(self, folder):
        self.folder, self.install_s = folder, 0.0

    def run(self, script, status=0, network=True):
        """network: the machine's, or none but loopback."""
        return run(*self.command(script, network), status=status, env=self.environment())

    def environment(self):
        return {"PATH": os.environ["PATH"], "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "HOME": "/root"}

    def command(self, script, network=True):
        mounts = ("mount -t proc proc \"$0/proc\"; mount --rbind /dev \"$0/dev\"; mount -t tmpfs tmpfs \"$0/tmp\"; "
                  "exec chroot \"$0\" bash -euc \"$1\"")
        if not network:
            mounts = "ip link set lo up; " + mounts
        return ["unshare", *([] if network else ["--net"]), "--mount", "--pid", "--fork", "--kill-child", "--propagation",
                "private", "sh", "-ec", mounts, self.folder, script]

    def path(self, name):
        return f"{self.folder}/{name}"


def make_debian(folder):
    """A minimal Debian in a new folder."""
    for tool in ("mmdebstrap", "debootstrap"):
        if shutil.which(tool):
            break
    else:
        raise Skipped("neither mmdebstrap nor debootstrap is here (tools/setup deb-test)")
    try:
        run(tool, "--variant=minbase", RELEASE, folder, MIRROR)
    except (Failed, subprocess.TimeoutExpired) as error:
        raise Skipped(f"no Debian could be made: {str(error)[-200:]}") from error
    return Box(folder)


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
