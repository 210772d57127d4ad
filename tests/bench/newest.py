"""The newest PyTorch of PyPI, beside Debian's or in place of it: into build/torch, once.

Its wheel is made for CUDA, and starts with the libraries of the toolkit in $CUDA_LIBRARIES
(/usr/local/cuda/lib64).
"""
import os
import subprocess
import sys

WHERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/torch")
# What the wheel needs on a machine without a GPU: without CUDA's libraries, which would be 3 GB more.
WHEELS = ("torch numpy typing_extensions sympy mpmath networkx jinja2 MarkupSafe fsspec filelock "
          "nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13").split()


def find():
    """Its python, after it was installed where it was not, and the environment to start it in."""
    python = os.path.join(WHERE, "bin", "python")
    if not os.path.exists(os.path.join(WHERE, "complete")):
        subprocess.run([sys.executable, "-m", "venv", WHERE], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *WHEELS], check=True)
        with open(os.path.join(WHERE, "complete"), "w", encoding="utf-8"):
            pass
    libraries = [os.environ.get("CUDA_LIBRARIES", "/usr/local/cuda/lib64"),
                 os.environ.get("LD_LIBRARY_PATH", "")]
    return python, dict(os.environ, LD_LIBRARY_PATH=":".join(path for path in libraries if path))


def start_again():
    """The program with that PyTorch. Does not return, unless it is the one that runs already."""
    if os.path.realpath(sys.prefix) == os.path.realpath(WHERE):
        return
    python, environment = find()
    os.execve(python, [python, *sys.argv], environment)
