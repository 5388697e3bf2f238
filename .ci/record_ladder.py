"""Measure both ladders of notebook 13: helpers/chapters/ladder.json. Let nothing else run.

python .ci/record_ladder.py
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helpers.chapters import n13  # noqa: E402

if __name__ == "__main__":
    found = {}
    for size in ("16M", "135M"):
        one = replace(n13.climb(size, cores=2), source="an earlier run, on two idle cores")
        if why := one.flaw():
            sys.exit(f"{size}: {why}. Nothing is written; let nothing else run, and try again.")
        found[size] = json.loads(json.dumps(asdict(one)), parse_float=lambda x: float(f"{float(x):.3g}"))
        print(size, found[size]["measured"])
    n13.RECORDED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
