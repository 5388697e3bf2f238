"""Make what is published: a page to send, a gallery, the notebooks to read, and the worksheet.

    python .ci/make_page.py                # build/: index, gallery and its three runs, worksheet
    python .ci/make_page.py --notebooks    # and build/notebooks/: some minutes, for their views they are run

All of it opens from disk, with no network and no kernel.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import launch  # noqa: E402
from make_worksheet import worksheet  # noqa: E402

from helpers.recording.diary import load_diary  # noqa: E402
from helpers.recording.toy import record_toy  # noqa: E402
from helpers.stepper import Race, Stepper, WhatIf  # noqa: E402
from helpers.stepper.page import Link, Section, build  # noqa: E402
from helpers.trace import Trace, write_whole  # noqa: E402

TITLE = "Watch it decode"
QUESTION = (
    "You press Enter. A pause; then words drip onto the screen, one by one. Why the pause, why the drip, and "
    "what is kept in between?"
)
LINE = re.compile(
    r"^\| \[(?P<name>.+?)\]\((?P<path>notebooks/\S+)\.ipynb\) \| (?P<question>.+?) \|$", re.MULTILINE
)


def notebooks() -> list[Link]:
    """The notebooks and their questions, as the README's table lists them."""
    found = LINE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    return [Link(name, f"{path}.html", question) for name, path, question in found]


def index(diary: Trace) -> str:
    """The page to send: race, stepper, what-if, and where to go on."""
    prompt, tokens = diary.sequences[0].prompt, len(diary.sequences[0].tokens)
    cached, plain = (sum(run.counted("positions")) for run in diary.runs)
    race = Section(
        (
            QUESTION,
            f"A small model is given {prompt} tokens of a diary, the prompt (a token is a word or a full "
            f"stop), and goes on for {tokens - prompt} more. It does so twice: once with a KV cache, which "
            "keeps what was worked out, and once without, where every word starts over from the beginning. "
            "The clock counts tokens run: one token put through the model, once. A pair is one token looking "
            "at another. Press Play.",
        ),
        Race(diary),
        "One run of the model over some tokens is a pass. The first takes the whole prompt at once, "
        f"which is the work of {prompt} tokens run: prefill, the pause. Each pass after it gives one word: a "
        "decode step, the drip. With the cache a decode step "
        "runs 1 token, the one that came out last; without it all of them. The words are drawn by chance, "
        f"with the same draws in both runs. The work is {cached} tokens run or {plain:,}.",
    )
    stepper = Section(
        (
            "The same diary, and you take the steps. A line of the grid is a token that looks, a column one "
            "that is looked at; the larger the square, its attention weight, the more the one takes from "
            "the other. So that later tokens can do so, each that has run leaves a row behind: a key, K, by "
            "which they find it, and a value, V, which they take. The drawer that holds them is the KV "
            "cache.",
            "The model has 4 layers, one on top of the other, and in each of them 4 heads, which look for "
            "different things. Choose head 3 of layer 1, go to decode 20, and see where “by” looks before "
            "it signs with a name. Next steps on, or the arrow keys.",
        ),
        Stepper(diary, panels="work"),
        "Now turn the cache off and step again. The words are the same, but for each of them every token "
        "runs again, and its row is dropped.",
        heading="What is kept",
    )
    what_if = Section(
        (
            "A second model, a toy, is so small that you can work it out on paper. Each word carries a "
            "number, its V in layer 1. Its four heads take means of the numbers so far (the second and the "
            "fourth; the newest; the first; all). The mean of these four is the token's V in layer 2. (Today "
            "is the first: no second yet, so 0; then 10, 10 and 10. Together 7.5.)",
            "The cache was filled with “Today weather is so nice”. Here weather has been changed from 20 to "
            "8. Change another number, put a word in or take one out.",
        ),
        WhatIf(),
        "What stands before the change may be kept: no token looks ahead, so nothing there can have seen it. "
        "That is why a cache can be used again for a prompt that begins alike, and only as far as it does. "
        "(A key says here only where a token stands. In a real model it is made as the value is, and goes "
        "stale with it.)",
        heading="When a kept row goes stale",
    )
    more = (
        Link("Gallery", "gallery.html", "A toy, a diary and a published model, to step through."),
        Link("Worksheet", "worksheet.html", "The walk by hand, to print."),
        Link("Code", f"{launch.GITHUB}{launch.repository()}", "Run the notebooks yourself, in a minute."),
    )
    books = Section(
        "Fifteen notebooks go from four heads on paper to a PyTorch decoder that you train, cache and step "
        "through.",
        heading="Work it out yourself",
        links=(*notebooks(), *more),
    )
    return build(TITLE, [race, stepper, what_if, books], summary=QUESTION)


def gallery(diary: Trace) -> dict[str, str]:
    """Pages of single runs, by file name, and the one that leads to them."""
    toy, published = record_toy(n_layers=2), Trace.load(Path(__file__).with_name("smollm2.json"))
    layers, heads = (sorted({pair[n] + 1 for pair in published.recorded}) for n in (0, 1))
    size = published.model
    shown = {
        "toy.html": (
            "A toy of two layers",
            toy,
            "Four heads that you can follow by hand, in two layers, on “Today weather is so”.",
        ),
        "diary.html": (
            "A signed diary",
            diary,
            "A model that the series trains goes on with a diary. It signs with the name that stands at the "
            "beginning: look which head looks there when Mia comes out.",
        ),
        "smollm2.html": (
            "SmolLM2 on the weather",
            published,
            f"{size.name} goes on with “Today's weather is so”. It has {size.n_layers} layers of "
            f"{size.n_heads} heads, with {size.n_kv_heads} heads of K and V. Shown are heads {_and(heads)} "
            f"of layers {_and(layers)}; the others ran too, and were left out to keep the page small. In "
            f"layer {layers[-1]} nearly all of the weight lies on the first token: heads that find nothing "
            "rest there.",
        ),
    }
    pages = {}
    for name, (title, trace, said) in shown.items():
        stepper = Stepper(trace, layer=min(layer for layer, _ in trace.recorded))
        pages[name] = build(
            title, [Section(said, stepper), Section(links=[Link("Gallery", "gallery.html")])], said
        )
    links = [Link(title, name, said) for name, (title, _, said) in shown.items()]
    back = Link(TITLE, "index.html", "The race, the stepper, what-if.")
    return {**pages, "gallery.html": build("Gallery", [Section("Three runs.", links=[*links, back])])}


def _and(numbers: list[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def main() -> None:
    """Write the files and say where they are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--notebooks", action="store_true", help="the notebooks too")
    wanted = parser.parse_args()
    diary = load_diary()
    pages = {"index.html": index(diary), **gallery(diary), "worksheet.html": worksheet()}
    (ROOT / "build" / "notebooks").mkdir(parents=True, exist_ok=True)
    if wanted.notebooks:
        from render_notebooks import render  # takes a second to import

        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            pages[f"notebooks/{path.stem}.html"] = render(path)
    for name, text in pages.items():
        write_whole(ROOT / "build" / name, text)
        print(ROOT / "build" / name, f"{len(text.encode()) / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
