"""The newest PyTorch of PyPI, beside Debian's or in place of it: into build/torch, or build/torch-cuda, once.

Its wheel is made for CUDA. Without a GPU it starts with the libraries of the toolkit in
$CUDA_LIBRARIES (/usr/local/cuda/lib64). On a GPU it comes with all that it names: CUDA's runtime,
cuBLAS, cuDNN and others of the version that it was made with, whatever toolkit there is.
"""
import os
import subprocess
import sys

# What the wheel needs on a machine without a GPU: without CUDA's libraries, which would be 3 GB more.
WHEELS = ("torch numpy typing_extensions sympy mpmath networkx jinja2 MarkupSafe fsspec filelock "
          "nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13").split()


def folder(on_gpu):
    name = "torch-cuda" if on_gpu else "torch"
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build", name)


def find(on_gpu=False):
    """Its python, after it was installed where it was not, and the environment to start it in."""
    where = folder(on_gpu)
    wheels = ["torch", "numpy"] if on_gpu else ["--no-deps", *WHEELS]
    python = os.path.join(where, "bin", "python")
    if not os.path.exists(os.path.join(where, "complete")):
        subprocess.run([sys.executable, "-m", "venv", where], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *wheels], check=True)
        with open(os.path.join(where, "complete"), "w", encoding="utf-8"):
            pass
    if on_gpu:
        return python, dict(os.environ)
    libraries = [os.environ.get("CUDA_LIBRARIES", "/usr/local/cuda/lib64"),
                 os.environ.get("LD_LIBRARY_PATH", "")]
    return python, dict(os.environ, LD_LIBRARY_PATH=":".join(path for path in libraries if path))


def start_again(on_gpu=False):
    """The program with that PyTorch. Does not return, unless it is the one that runs already."""
    if os.path.realpath(sys.prefix) == os.path.realpath(folder(on_gpu)):
        return
    python, environment = find(on_gpu)
    os.execve(python, [python, *sys.argv], environment)
