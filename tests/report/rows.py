"""Rows of the tables that an analysis has written."""

import pandas as pd


def table(root, name, **values):
    """Return the rows of a table in the folder `report` of `root` that have all of `values`."""
    frame = pd.read_csv(root / "report" / f"{name}.csv")
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame


def the(frame):
    """Return the only row."""
    assert len(frame) == 1
    return frame.iloc[0]
