"""Being busy: real work that takes long, and can look like a hang from one side or another.

Key insight: they differ in what an observer can see. `crawl` moves bytes; `tune` visits many stacks; `build` works in children;
`compile_in_process` sits in one native compiler call after another from one line of Python, with the GIL held (Python's own
compiler, in libpython: it is the only one sure to be there); `factorise` sits in one LAPACK call of several seconds.
"""

from __future__ import annotations

import collections
import itertools
import mmap
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from ..faults import Fault
from .stage import Stage

_CALL_S = 2.0
_LONG_CALL_S = 8.0


def crawl(fault: Fault, stage: Stage) -> None:
    """The phase's own work, in tiny steps a third of a second apart, with a page or two each."""
    until = _until(fault)
    while time.monotonic() < until:
        stage.step(True)
        _touch(16)
        time.sleep(min(0.35, max(0.0, until - time.monotonic())))


def tune(fault: Fault, stage: Stage) -> None:
    """Works hard in silence: products, sorting, checksums over files, fresh pages, in turn, half a second each."""
    until = _until(fault)
    for work in itertools.cycle((_time_products, _sort_candidates, _read_libraries, _fill_workspace)):
        if time.monotonic() >= until:
            return
        work(min(until, time.monotonic() + 0.5))


def build(fault: Fault, stage: Stage) -> None:
    """Child compilers work, one after the other (each well under a second), and this process waits for them."""
    until = _until(fault)
    for number in itertools.count():
        if time.monotonic() >= until:
            return
        _compile_unit(number)


def compile_in_process(fault: Fault, stage: Stage) -> None:
    """Compiles a large source again and again inside one native call after the other."""
    until = _until(fault)
    source = "\n".join(
        f"def kernel_{n}(a, b):\n    return [(a[i] * {n} + b[i], a[i] ** 2 - {n}.5) for i in range({n})]" for n in range(300)
    )
    began = time.monotonic()
    compile(source, "<kernels>", "exec")
    each = max(1e-3, time.monotonic() - began)
    while (left := until - time.monotonic()) > 0:
        count = max(1, int(min(left, _CALL_S) / each))
        collections.deque(map(compile, itertools.repeat(source, count), itertools.repeat("<kernels>"), itertools.repeat("exec")), maxlen=0)


def factorise(fault: Fault, stage: Stage) -> None:
    """Eigenvalues of a matrix whose size makes one native call last several seconds."""
    until = _until(fault)
    dice = np.random.default_rng(7)
    size = 160
    began = time.monotonic()
    np.linalg.eigvals(dice.standard_normal((size, size)))
    cost = max(1e-3, time.monotonic() - began) / size**3
    while (left := until - time.monotonic()) > 0.05:
        matrix = dice.standard_normal((fitting := int((min(left, _LONG_CALL_S) / cost) ** (1 / 3)), fitting))
        np.linalg.eigvals(matrix)


def _until(fault: Fault) -> float:
    return float("inf") if fault.for_s is None else time.monotonic() + fault.for_s


def _touch(pages: int) -> None:
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as area:
        for page in range(pages):
            area[page * mmap.PAGESIZE] = 1


def _time_products(until: float) -> None:
    matrix = np.ones((192, 192))
    while time.monotonic() < until:
        matrix = matrix @ matrix / 192.0


def _sort_candidates(until: float) -> None:
    while time.monotonic() < until:
        sorted(range(20000), key=lambda number: number * 7919 % 20011)


def _read_libraries(until: float) -> None:
    import hashlib

    files = itertools.cycle(sorted(Path(np.__file__).parent.glob("*.py*")))
    while time.monotonic() < until:
        hashlib.sha256(next(files).read_bytes()).hexdigest()


def _fill_workspace(until: float) -> None:
    while time.monotonic() < until:
        _touch(512)


def _compile_unit(number: int) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        source, arguments = _PYTHON_UNIT, [sys.executable, "-I", "-"]
    else:
        source = "\n".join(_C_UNIT.replace("NUMBER", str(number * 1000 + n)) for n in range(40))
        arguments = [compiler, "-O2", "-S", "-x", "c", "-", "-o", "/dev/null"]
    subprocess.run(arguments, input=source.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


_C_UNIT = """
double kernel_NUMBER(const double *a, double *b, int n) {
  double s = NUMBER;
  for (int i = 1; i < n; i++) { for (int j = 0; j < 16; j++) { b[i * 16 + j] += a[i - 1] * a[j] + s; s += b[j] * 0.5; } }
  switch (n % 7) { case 0: s *= 2; break; case 1: s -= a[3]; break; case 2: s /= a[1] + 1; break; default: s += NUMBER; }
  return s;
}"""

_PYTHON_UNIT = """
try:
    import setproctitle
    setproctitle.setproctitle("cicc -O3 --generate-code")
except ImportError:
    pass
source = "\\n".join(f"def kernel_{n}(a, b): return [(x * {n} + y) ** 2 for x, y in zip(a, b)]" for n in range(20000))
compile(source, "<unit>", "exec")
"""
