"""How a command ends: without a word where its reader has gone, as `| head` goes, and in one sentence where it cannot do what is asked."""

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


@contextlib.contextmanager
def failing_in_one_sentence() -> Iterator[None]:
    """End the process with one sentence where what is asked for cannot be done, or a file of a run is not what it should be."""
    try:
        yield
    except KeyError as error:
        sys.exit(f"error: a table or file of a run lacks {error}; it is of another version, or damaged")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
