"""How rows become the text of a table."""

from collections.abc import Iterable
from typing import Any

import pandas as pd


def csv_text(rows: Iterable[dict[str, Any]], columns: list[str], whole: Iterable[str]) -> str:
    """Return a table as CSV, the columns `whole` without a point and floats to six digits."""
    table = pd.DataFrame(list(rows), columns=columns)
    table = table.astype({name: "Int64" for name in whole if name in columns})
    return table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
