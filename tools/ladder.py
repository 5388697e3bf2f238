"""Measure the ladder of notebook 13: helpers/chapters/data/ladder.json. Let nothing else run.

python -m tools ladder
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace

from helpers.chapters import n13
from tools.launch import parser


def main() -> None:
    parser(__doc__).parse_args()
    found = replace(n13.climb("16M", cores=2), source="an earlier run, on two idle cores")
    if why := found.flaw():
        sys.exit(f"{why}. Nothing is written; let nothing else run, and try again.")
    kept = json.loads(json.dumps(asdict(found)), parse_float=lambda x: float(f"{float(x):.3g}"))
    print(kept["measured"])
    n13.RECORDED.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
