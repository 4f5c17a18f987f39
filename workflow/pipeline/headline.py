"""The main numbers of a finished run, for the terminal."""

from pathlib import Path


def text(reports: Path) -> str:
    """Return where the report lies."""
    return f"Report: {reports / 'report.html'}"
