"""Time a decode step after each of notebook 13's optimizations, and write helpers/chapters/data/ladder.json.

The page's own cells time products in two orders of rows. No other program may use the processor during the
measurement.

    python -m tools ladder
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import nbformat

from helpers.chapters import n13
from tools.launch import argument_parser

PAGE = Path(__file__).parents[1] / "notebooks" / "13_to_the_floor.ipynb"
TIMING_CELLS = ("c13-imports", "c13-loop", "c13-orders", "c13-widths")  # they define `measure_speeds`


def timing_code() -> dict[str, Any]:
    """Run the page's cells that define how products are timed, and return the names that they define."""
    page: dict[str, Any] = {}
    for cell in nbformat.read(PAGE, as_version=4).cells:
        if cell.id in TIMING_CELLS:
            exec(cell.source, page)
    return page


def fastest_reading(ladder: n13.StepTimeLadder) -> dict[str, float]:
    """Return the bandwidths; that of one core is at least the fastest at which a product reads 32 bits."""
    fastest = 1e9 * max(max(speeds[1:]) for speeds in ladder.product_speeds.values())  # [0]: from the cache
    one_core = n13.STEP_VARIANTS[n13.UNCHANGED]
    return {
        way: max(speed, fastest) if n13.STEP_VARIANTS[way] == one_core else speed
        for way, speed in ladder.bandwidths.items()
    }


def main() -> None:
    argument_parser(__doc__).parse_args()
    ladder = n13.measure_ladder("16M", cores=2)
    speeds = timing_code()["measure_speeds"]()
    ladder = replace(ladder, product_speeds=speeds, source="an earlier run, on two idle cores")
    ladder = replace(ladder, bandwidths=fastest_reading(ladder))
    if reason := ladder.why_unusable():
        sys.exit(f"{reason} Nothing was written.")
    rounded = json.loads(json.dumps(asdict(ladder)), parse_float=lambda x: float(f"{float(x):.3g}"))
    print(rounded["measured_ms"])
    n13.RECORDED_LADDER_FILE.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf-8")
