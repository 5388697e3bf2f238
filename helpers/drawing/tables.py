"""Small tables that look the same in a notebook, in a terminal and in a test."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from helpers.drawing.numbers import format_number

Cell = Any


class Table:
    """A table of numbers or strings, with a name for each row and each column.

    Args:
        rows: one sequence of cells per row. Cells are formatted with `format_number`.
        index: the names of the rows.
        columns: the names of the columns.
        digits: maximum number of decimals.
        corner: the heading of the column that contains the row names.

    Raises:
        ValueError: the number of names is not equal to the number of rows or columns.
    """

    def __init__(
        self, rows: Any, index: Sequence[Cell], columns: Sequence[Cell], digits: int = 2, corner: str = ""
    ) -> None:
        cells = [[format_number(x, digits) for x in row] for row in rows]
        widths = {len(row) for row in cells}
        if len(cells) != len(index) or widths - {len(columns)}:
            raise ValueError(
                f"{len(cells)} rows of {sorted(widths)} cells came with {len(index)} row names and "
                f"{len(columns)} column names; expected one name for each"
            )
        self.header = [corner, *map(str, columns)]
        self.rows = [[str(name), *row] for name, row in zip(index, cells, strict=True)]

    def __repr__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        names = [line[0].ljust(widths[0]) for line in lines]
        cells = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)][1:] for line in lines]
        return "\n".join("  ".join([name, *rest]).rstrip() for name, rest in zip(names, cells, strict=True))

    def _repr_html_(self) -> str:
        head = _html_line("th", self.header)
        body = "".join(_html_line("td", row) for row in self.rows)
        return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _html_line(tag: str, cells: Sequence[str]) -> str:
    # A minus sign, not a hyphen: "-inf" would break in two where a column is narrow.
    first, *rest = (escape(cell[:1].replace("-", "−") + cell[1:]) for cell in cells)
    right = "".join(f'<{tag} style="text-align:right">{cell}</{tag}>' for cell in rest)
    return f'<tr><th scope="row" style="text-align:left">{first}</th>{right}</tr>'
