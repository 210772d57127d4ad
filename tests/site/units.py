"""As much of systemd as the units of configs/systemd use, for one box; process 1 of it.

A unit file is read with its drop-ins; its commands run as its user, see and write what
ProtectSystem=, ProtectHome=, PrivateTmp=, StateDirectory=, ReadWritePaths= leave them, say READY=1
and WATCHDOG=1, are ended by KillSignal= and come back by Restart=. A line that is not understood
and could matter is an error: a unit must not pass because it was not looked at.
"""
import os
import pwd
import re
import shlex
import signal
import socket
import subprocess
import threading
import time

FOLDERS = ("/etc/systemd/system", "/lib/systemd/system")
RESTART_SHARE = 0.2  # of RestartSec: nothing else runs here
KNOWN = {
    "Description", "Wants", "After", "Before", "StartLimitIntervalSec", "RequiresMountsFor", "Type",
    "TimeoutStartSec", "WatchdogSec", "User", "Group", "Environment", "EnvironmentFile",
    "StateDirectory", "WorkingDirectory", "ExecStart", "ExecStartPre", "ExecReload", "Restart",
    "RestartSec", "RestartPreventExitStatus", "SuccessExitStatus", "KillSignal", "KillMode",
    "TimeoutStopSec", "UMask",
    "ProtectSystem", "ProtectHome", "PrivateTmp", "ReadWritePaths", "NoNewPrivileges",
    "CapabilityBoundingSet", "LimitNOFILE", "LimitCORE", "WantedBy"}
NOT_DONE = re.compile(  # what only the kernel and systemd can do to a process
    "^(Private(Devices|Network)|MemoryDenyWriteExecute|Protect(Clock|Hostname|Kernel.*|ControlGroups|Proc)|"
    "Restrict.*|LockPersonality|SystemCall.*|LimitMEMLOCK)$")
CLEAN_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)


class UnitError(Exception):
    """What systemctl would say."""


def read_unit(name):
    """{key: [values]} of a unit with its drop-ins. name: "lanyard-ps@0.service"."""
    stem, _, instance = name.removesuffix(".service").partition("@")
    files = [stem + "@.service", name] if instance else [name]
    path = next((os.path.join(folder, one) for folder in FOLDERS for one in files
                 if os.path.exists(os.path.join(folder, one))), None)
    if path is None:
        raise UnitError(f"Unit {name} not found.")
    paths = [path]
    for folder in [os.path.join(folder, one + ".d") for folder in FOLDERS for one in files]:
        if os.path.isdir(folder):
            paths += [os.path.join(folder, one) for one in sorted(os.listdir(folder))
                      if one.endswith(".conf")]
    keys = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in map(str.strip, file):
                if not line or line[0] in "#;[":
                    continue
                key, equals, value = line.partition("=")
                if not equals or not (key in KNOWN or NOT_DONE.match(key)):
                    raise UnitError(f"{path}: not understood: {line}")
                keys.setdefault(key, []).append(value.replace("%i", instance))
    return keys


def words_of(values):
    return [word for value in values for word in value.split()]


class Unit:
    """A service: its process, and a thread that starts it again."""

    def __init__(self, name, keys):
        self.name, self.keys = name, keys
        self.wanted, self.process, self.ready = False, None, threading.Event()
        self.state, self.starts, self.ends, self.signs, self.heard = "inactive", 0, 0, 0, 0.0
        self.log = f"/run/log-{name}"
        self.changed, self.thread = threading.Condition(), None

    def last(self, key, default=""):
        return self.keys.get(key, [default])[-1]

    def environment(self):
        found = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/var/lib/lanyard"}
        for value in self.keys.get("Environment", []):
            found.update([word.split("=", 1) for word in shlex.split(value)])
        for path in self.keys.get("EnvironmentFile", []):
            if not os.path.exists(path.lstrip("-")):
                if path.startswith("-"):
                    continue
                raise UnitError(f"{self.name}: {path} is not there")
            with open(path.lstrip("-"), encoding="utf-8") as file:
                found.update([line.strip().split("=", 1) for line in file if "=" in line])
        if self.last("Type") == "notify":
            found["NOTIFY_SOCKET"] = f"/run/notify-{self.name}"
        if self.last("WatchdogSec"):
            found["WATCHDOG_USEC"] = str(int(float(self.last("WatchdogSec")) * 1e6))
        return found

    def confined(self, command, environment):
        """The command, in a mount namespace in which it may write what the unit says."""
        user = self.last("User", "root")
        state = [os.path.join("/var/lib", one) for one in words_of(self.keys.get("StateDirectory", []))]
        for folder in state:
            os.makedirs(folder, exist_ok=True)
            record = pwd.getpwnam(user)
            os.chown(folder, record.pw_uid, record.pw_gid)
        # bash alone would forget a SIGINT that comes while it waits for a mount.
        script = ["set -eu", "trap 'trap - INT; kill -INT $$' INT", "mount --make-rprivate /"]
        if self.last("ProtectSystem") == "strict":
            for path in state + words_of(self.keys.get("ReadWritePaths", [])) + ["/run"]:
                if path.startswith("-") and not os.path.exists(path[1:]):
                    continue
                script.append(f"mount --bind {shlex.quote(path.lstrip('-'))} "
                              f"{shlex.quote(path.lstrip('-'))}")
            script.append("mount -o remount,bind,ro /")
        hidden = ["/tmp", "/var/tmp"] if self.last("PrivateTmp") == "yes" else []
        hidden += ["/home", "/root"] if self.last("ProtectHome") == "yes" else []
        script += [f"mount -t tmpfs -o mode={'1777' if 'tmp' in one else '0'} tmpfs {one}"
                   for one in hidden]
        script += [f"umask {self.last('UMask', '0022')}",
                   f"cd {shlex.quote(self.last('WorkingDirectory', '/'))}",
                   f"ulimit -n {self.last('LimitNOFILE', '1024')} 2>/dev/null || true",
                   f"ulimit -c {self.last('LimitCORE', '0')}"]
        privileges = ["setpriv", f"--reuid={user}", f"--regid={self.last('Group', user)}",
                      "--init-groups"]
        privileges += ["--no-new-privs"] if self.last("NoNewPrivileges") == "yes" else []
        privileges += ["--bounding-set=-all"] if "CapabilityBoundingSet" in self.keys else []
        expanded = [re.sub(r"\$\{(\w+)\}", lambda found: environment[found.group(1)], word)
                    for word in shlex.split(command)]
        # Only main has its pid in WATCHDOG_PID, and here every process keeps it through exec.
        script.append("export WATCHDOG_PID=$$; exec " + shlex.join(privileges + expanded))
        return ["unshare", "--mount", "bash", "-c", "\n".join(script)]

    def listen(self):
        path = f"/run/notify-{self.name}"
        if os.path.exists(path):
            os.unlink(path)
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.bind(path)
        os.chmod(path, 0o777)
        one.settimeout(0.1)
        return one

    def run_once(self):
        """From the start of the process to its end. True: to be started again."""
        environment = self.environment()
        with open(self.log, "ab") as log:
            for command in self.keys.get("ExecStartPre", []):
                done = subprocess.run(self.confined(command, environment), env=environment,
                                      stdout=log, stderr=log, check=False)
                if done.returncode != 0:
                    self.state, self.ends = "failed", self.ends + 1
                    return self.last("Restart") in ("always", "on-failure")
            manager = self.listen()
            self.heard = time.monotonic()
            self.process = subprocess.Popen(
                self.confined(self.last("ExecStart"), environment), env=environment, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.starts += 1
        self.state = "activating"
        if self.last("Type") != "notify":  # it is up as soon as it runs
            self.take("READY=1")
        while self.process.poll() is None:
            try:
                self.take(manager.recv(4096).decode())
            except TimeoutError:
                pass
            limit_s = float(self.last("WatchdogSec", "0"))
            if self.ready.is_set() and limit_s and time.monotonic() - self.heard > limit_s:
                os.killpg(self.process.pid, signal.SIGABRT)
        manager.close()
        return self.ended(self.process.returncode)

    def take(self, text):
        for line in text.split("\n"):
            if line == "READY=1":
                self.state = "active"
                self.heard = time.monotonic()
                self.ready.set()
            elif line == "WATCHDOG=1":
                self.heard = time.monotonic()
                self.signs += 1

    def ended(self, code):
        self.ready.clear()
        self.ends += 1
        is_clean = (code == 0 or -code in CLEAN_SIGNALS or
                    str(code) in words_of(self.keys.get("SuccessExitStatus", [])))
        self.state = "inactive" if is_clean else "failed"
        if not self.wanted or str(code) in words_of(self.keys.get("RestartPreventExitStatus", [])):
            return False
        return self.last("Restart") == "always" or (self.last("Restart") == "on-failure"
                                                    and not is_clean)

    def keep(self):
        try:
            while self.run_once():
                with self.changed:
                    self.changed.wait_for(lambda: not self.wanted,
                                          float(self.last("RestartSec", "0.1")) * RESTART_SHARE)
                if not self.wanted:
                    break
        except (UnitError, OSError, KeyError) as error:
            self.state = "failed"
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(f"{self.name}: {error}\n")
        self.process = None

    def start(self):
        """Returns once it is ready, as systemctl does."""
        if self.thread and self.thread.is_alive():
            return
        self.wanted, ends = True, self.ends
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()
        while self.ends == ends and self.thread.is_alive() and not self.ready.wait(0.02):
            pass
        if not self.ready.is_set():
            raise UnitError(f"Job for {self.name} failed.")

    def stop(self):
        with self.changed:
            self.wanted = False
            self.changed.notify_all()
        signalled, end = None, time.monotonic() + float(self.last("TimeoutStopSec", "90"))
        while self.thread and self.thread.is_alive():  # it may be about to start its process again
            process = self.process
            if process and process.poll() is None:
                if time.monotonic() > end:
                    os.killpg(process.pid, signal.SIGKILL)
                elif process is not signalled:
                    process.send_signal(getattr(signal, self.last("KillSignal", "SIGTERM")))
                    signalled = process
            self.thread.join(0.05)


class Manager:
    """What systemctl talks to."""

    def __init__(self):
        self.units, self.enabled = {}, set()

    def find(self, name):
        name = name if name.endswith(".service") else name + ".service"
        if name not in self.units:
            self.units[name] = Unit(name, read_unit(name))
        return self.units[name]

    def in_order(self, units):
        """Those that have to be there before others first; they are stopped the other way round."""
        def is_first(unit):
            return any(other.name in words_of(unit.keys.get("Before", [])) or
                       unit.name in words_of(other.keys.get("After", [])) for other in units)
        return sorted(units, key=is_first, reverse=True)

    def wanted_by(self, units):
        """Services that come with these."""
        names = {name for unit in units for name in words_of(unit.keys.get("Wants", []))
                 if name.endswith(".service")}
        return [self.find(name) for name in sorted(names)]

    def reload(self):
        for unit in self.units.values():
            unit.keys = read_unit(unit.name)

    def command(self, verb, *words):
        """(status, text) of `systemctl VERB ...`."""
        options = [one for one in words if one.startswith("-")]
        names = [one for one in words if not one.startswith("-")]
        if verb == "daemon-reload":
            self.reload()
            return 0, ""
        if verb == "kill":  # kill -s SIGNAL UNIT
            number = getattr(signal, "SIG" + names.pop(0).removeprefix("SIG"))
            for unit in map(self.find, names):
                if unit.process is None:
                    raise UnitError(f"{unit.name} has no process")
                unit.process.send_signal(number)
            return 0, ""
        if verb == "poweroff":
            for unit in reversed(self.in_order(list(self.units.values()))):
                unit.stop()
            return 0, ""
        units = [self.find(name) for name in names]
        if not units:
            raise UnitError(f"systemctl {verb}: not understood")
        if verb == "is-active":
            return (0 if all(unit.state == "active" for unit in units) else 3,
                    "".join(unit.state + "\n" for unit in units))
        if verb == "show":  # beyond systemctl's: what the tests look at
            return 0, "".join(f"{unit.name} {unit.state} starts={unit.starts} signs={unit.signs}\n"
                              for unit in units)
        if verb == "enable":
            self.enabled |= {unit.name for unit in units}
        if verb in ("stop", "restart"):
            for unit in reversed(self.in_order(units)):
                unit.stop()
        if verb in ("start", "restart") or (verb == "enable" and "--now" in options):
            for unit in self.in_order(units + self.wanted_by(units)):
                unit.start()
        elif verb not in ("stop", "enable"):
            raise UnitError(f"systemctl {verb}: not understood")
        return 0, ""
