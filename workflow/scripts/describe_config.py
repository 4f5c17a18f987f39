"""Write config/schema.json and the generated part of config/README.md from the config classes (`make schema`)."""

from pathlib import Path

from glint.config.reference import schema, table
from glint.files import write_text

FOLDER = Path(__file__).parents[2] / "config"
MARK = "<!-- generated from the config classes by `make schema` -->\n"


def readme(text: str) -> str:
    """Return `text` with all that follows the mark replaced by the table."""
    return text.partition(MARK)[0] + MARK + "\n" + table()


def main() -> None:
    """Write both files."""
    write_text(FOLDER / "schema.json", schema())
    write_text(FOLDER / "README.md", readme((FOLDER / "README.md").read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
