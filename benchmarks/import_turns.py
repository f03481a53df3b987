"""How long imports take. It imports none of what it measures."""

import subprocess
import sys

from benchmarks.figures import Figures, Request

__all__ = ["import_time"]


def import_time(request: Request) -> Figures:
    """Milliseconds to import all public names of the package `of`, compiled, each time in a new process.

    With `alone`, to import the package: names may be imported when they are used.
    """
    code = "import time; began, cpu = time.perf_counter(), time.process_time(); "
    package = request.options["of"]
    code += f"import {package}; " if request.options.get("alone") else f"from {package} import *; "
    code += "print(time.perf_counter() - began, time.process_time() - cpu)"
    # The first one compiles.
    command = [sys.executable, "-c", code]
    told = [subprocess.check_output(command, text=True) for _ in range(1 + request.size)]
    taken = [tuple(map(float, one.split())) for one in told[1:]]
    samples = tuple(1e3 * wall for wall, _ in taken)
    return Figures(request.size, cpu_seconds=sum(cpu for _, cpu in taken), samples=samples)
