"""Time a decode step after each of notebook 13's optimizations, and write helpers/chapters/data/ladder.json.

No other program may use the processor during the measurement.

    python -m tools ladder
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace

from helpers.chapters import n13
from tools.launch import argument_parser


def main() -> None:
    argument_parser(__doc__).parse_args()
    ladder = replace(n13.measure_ladder("16M", cores=2), source="an earlier run, on two idle cores")
    if reason := ladder.why_unusable():
        sys.exit(f"{reason}. Nothing was written; stop all other programs and try again.")
    rounded = json.loads(json.dumps(asdict(ladder)), parse_float=lambda x: float(f"{float(x):.3g}"))
    print(rounded["measured_ms"])
    n13.RECORDED_LADDER_FILE.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf-8")
