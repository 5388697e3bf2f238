"""Make the published page: the stepper of notebook 00 with a few sentences around it, and the worksheet.

    python .ci/make_page.py                    # build/index.html and build/worksheet.html

Both open from disk, with no network and no kernel.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import launch  # noqa: E402
from make_worksheet import worksheet  # noqa: E402

from helpers.recording.toy import record_toy  # noqa: E402
from helpers.stepper import Stepper  # noqa: E402
from helpers.trace import write_whole  # noqa: E402

TITLE = "Watch it decode"
BEFORE = (
    "You press Enter. A pause; then words drip onto the screen, one by one. Why the pause, why the "
    "drip, and what is kept in between?",
    "Here you watch it in a model so small that it can be worked out on paper. The prompt is “Today "
    "weather is so”, four tokens. One run of the model over some tokens is a pass. The first pass "
    "takes the whole prompt at once: prefill, the pause. Each pass after it takes one token, the one "
    "that came out last: a decode step, the drip.",
    "Each row of the grid is a token that looks, each column a token that is looked at, and a dot is "
    "one such pair. Every token that has run leaves a row of K and a row of V behind: the KV cache. "
    "Press Next, or click into the stepper and use the arrow keys.",
)
AFTER = (
    "Now turn the cache off and step again. What changes, the words or the work? The work. Without "
    "the cache the decode step runs all 5 tokens to get one new row; with it, 1. The words that come "
    "out are the same.",
    "Then go back to Training. It is the grid of prefill, and every row has a target: the token that "
    "it should have predicted.",
)


def main() -> None:
    """Write both files and say where."""
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    last = (
        "The notebooks start from four heads that you can work out on paper: "
        f"{launch.GITHUB}{launch.repository()}",
        f"A worksheet for that, to print: {launch.page()}worksheet.html",
    )
    page = build / "index.html"
    Stepper(record_toy(), panels="passes").save_html(page, title=TITLE, before=BEFORE, after=(*AFTER, *last))
    write_whole(build / "worksheet.html", worksheet())
    print(page, build / "worksheet.html", sep="\n")


if __name__ == "__main__":
    main()
