"""Files that are whole or absent: atomic writes, checksums, receipts."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the place of `path`, on failure it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        _flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, atomically; NaN is refused."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the JSON value in `path`; a damaged file raises ValueError naming it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); delete it and run again") from error


def read_parquet(path: Path) -> "pandas.DataFrame":
    """Return the table in `path`; a damaged file raises ValueError naming it."""
    import pandas  # here, because most users of this module need no tables, and importing pandas takes half a second
    import pyarrow

    try:
        return pandas.read_parquet(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is not a whole Parquet file ({error}); delete it and run again") from error


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write records as JSON lines, whole or not at all."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def write_parquet(path: Path, table: "pandas.DataFrame") -> None:
    """Write a table, without its index, whole or not at all."""
    with replacing(path) as temporary:
        table.to_parquet(temporary, index=False)


def sha256(path: Path) -> str:
    """Return the SHA-256 of the bytes of `path`, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
