"""How a command ends whose reader has gone, as `| head` goes: without a word."""

import contextlib
import os
import sys
from collections.abc import Iterator

NO_READER = 141
"""Exit code, 128 and the number of the signal, as shells have it."""


@contextlib.contextmanager
def ending_with_its_reader() -> Iterator[None]:
    """End the process with `NO_READER` where nobody reads what is printed inside.

    What is still buffered goes nowhere, so that Python has nothing to complain of on its way out.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(NO_READER)
