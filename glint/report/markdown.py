"""Markdown from templates: front matter as YAML, tables, and the house's way to write numbers."""

from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from glint.report import wording
from glint.report.tables import Table


def render(template: str, content: dict[str, Any]) -> str:
    """Return the Markdown that `template` makes of `content`; a name that is missing is an error."""
    environment = Environment(loader=PackageLoader("glint.report"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"plain": plain, "front_matter": front_matter}
    environment.globals["table"] = table
    environment.globals |= {name: getattr(wording, name) for name in ("share", "setting", "points", "interval", "whole", "count")}
    return environment.get_template(template).render(content).rstrip("\n") + "\n"


def table(data: Table) -> str:
    """Return a table; its caption is left to the heading above."""
    rows = [data.header, tuple("---" for _ in data.header), *data.rows]
    return "\n".join(f"| {' | '.join(plain(cell) for cell in row)} |" for row in rows)


def plain(text: str) -> str:
    """Return a text on one line, in which no sign means a cell of a table or, outside of code, a tag."""
    line = " ".join(text.split("\n")).replace("|", "\\|")
    return line if line.startswith("`") else line.replace("<", "&lt;")


def front_matter(values: dict[str, Any]) -> str:
    """Return the block of metadata with which model hubs head a card."""
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)}---"
