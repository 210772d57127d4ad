"""Puts the library and the program into the wheel: those that LANYARD_LIBRARY and LANYARD_PROGRAM name, else those of
the tree that this folder stands in, which `make` builds."""

import glob
import os
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)
LIBRARY = "liblanyard.so.1"


def find():
    """(library, program). What is named is taken; make builds what the tree lacks."""
    library, program = os.environ.get("LANYARD_LIBRARY"), os.environ.get("LANYARD_PROGRAM")
    if not library or not program:
        make_in_tree()
    found = library or f"{TREE}/build/liblanyard.so", program or f"{TREE}/build/lanyard"
    for path in found:
        if not os.path.isfile(path):
            sys.exit(f"lanyard: {path} is not there: build it (`make program library`), or name both with "
                     "LANYARD_LIBRARY and LANYARD_PROGRAM")
    return found


def make_in_tree():
    if not os.path.exists(f"{TREE}/mk/library.mk"):
        sys.exit(f"lanyard: {HERE} does not stand in a tree of Lanyard, whose library and program the package holds: "
                 "install from there (pip install ./python), or name them with LANYARD_LIBRARY and LANYARD_PROGRAM")
    if all(os.path.exists(f"{TREE}/build/{name}") for name in ("liblanyard.so", "lanyard")):
        return
    if not shutil.which("make") or subprocess.run(["make", "-C", TREE, "program", "library"], check=False).returncode:
        sys.exit(f"lanyard: `make program library` in {TREE} failed; `make setup` installs what it needs "
                 "(docs/DEPENDENCIES.md)")


class Build(build_py):
    def run(self):
        super().run()
        library, program = find()
        into = os.path.join(self.build_lib, "lanyard")
        self.mkpath(f"{into}/bin")
        shutil.copy(library, f"{into}/{LIBRARY}")
        shutil.copy(program, f"{into}/bin/lanyard")
        for plugin in glob.glob(f"{os.path.dirname(program)}/liblanyard_cuda.so"):  # beside the program
            shutil.copy(plugin, f"{into}/bin")


class Wheel(bdist_wheel):
    """Of any Python 3, and of this machine."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Binary)
