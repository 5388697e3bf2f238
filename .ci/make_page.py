"""Make what is published: a page to send, ways through, a gallery, the notebooks, a class, sheets to print.

    python .ci/make_page.py                # build/: index and its model, ways, gallery, a class, sheets
    python .ci/make_page.py --notebooks    # and build/notebooks/: some minutes, for their views they are run;
                                           # and the search of all that
    python .ci/make_page.py --model        # and a published model, 98 MB, that a button of the page fetches

All of it opens from disk, with no network and no kernel.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import launch  # noqa: E402
import nbformat  # noqa: E402
from film import FILMS, LENGTH, film  # noqa: E402
from make_card import TABLE_STYLE, card, phases  # noqa: E402
from make_class import FIGURES, slides, teaching  # noqa: E402
from make_sheets import sheets  # noqa: E402
from make_worksheet import worksheet  # noqa: E402
from sizes import SHORT  # noqa: E402

from helpers.recording.diary import load_diary  # noqa: E402
from helpers.recording.toy import record_toy  # noqa: E402
from helpers.stepper import Live, Pool, Stepper, StepTime, WhatIf  # noqa: E402
from helpers.stepper.page import Link, Section, build, file_script  # noqa: E402
from helpers.trace import EngineTrace, Trace, write_whole  # noqa: E402

TITLE = "Watch it decode"
QUESTION = (
    "You press Enter. A pause; then words drip onto the screen, one by one. Why the pause, why the drip, and "
    "what is kept in between?"
)
PREVIEW = ROOT / "notebooks" / "pictures" / "race.png"  # what a messenger shows beside the page's address
# What stood at other addresses before; who has one of them is led on.
MOVED = {
    "05_projections": "06_learned_heads",
    "06_transformer": "07_transformer",
    "07_prefill_decode": "09_pause_and_drip",
    "08_your_model": "10_your_model",
    "09_memory": "11_memory",
    "10_limit": "12_floor",
    "11_smaller_caches": "14_forget",
    "12_serving": "16_serving",
    "13_speculation": "18_speculation",
    "14_two_machines": "19_two_machines",
}
LINE = re.compile(
    r"^\| \[(?P<name>.+?)\]\((?P<path>notebooks/\S+)\.ipynb\) \| (?P<question>.+?) \| "
    r"(?P<minutes>[\d +]*?) *\|$",
    re.MULTILINE,
)
ASKED = re.compile(
    r"^\| (?P<question>[^|[]+\?)(?: \(\[[^|]+\))? \| (?P<answer>[^|]+) \| "
    r"\[\w+\]\((?P<path>\w+)\.ipynb(?P<cell>[^)]*)\) \|$",
    re.MULTILINE,
)
SEARCH = Link("Search", "search.html", "Notebooks to the cell, words, and questions that people ask.")
STEP = (
    "The models above are small, and your browser runs them. Here one equation says how long a decode step "
    "has to take with a model that many people use, on a card that many rent: it reads the weights and each "
    "user's rows, and computes.",
    "A real step takes longer; what is left out stands under the bars. The address holds your case, so that "
    "you can send it.",
)
SEVENTY = "case-as=Llama-3.1-70B&case-users=32&case-cards=4&case-collective=15"
CATCHING = "How many users fit on my card?"
WAY = re.compile(r"\*\*The (?P<way>short|whole) way\*\*, (?P<time>[^:\n]+):")


def readme() -> str:
    """The README, where the notebooks and the ways stand."""
    return (ROOT / "README.md").read_text(encoding="utf-8")


def notebooks() -> list[Link]:
    """The notebooks, their questions and minutes, as the README's table lists them."""
    return [
        Link(name, f"{path}.html", f"{minutes} min · {question}" if minutes else question)
        for name, path, question, minutes in LINE.findall(readme())
    ]


def questions() -> list[Link]:
    """The questions that people ask, each with its answer, and the cell or page that shows it."""
    cells = nbformat.read(ROOT / "notebooks" / "questions.ipynb", as_version=4).cells
    return [
        Link(question, f"notebooks/{path}.html{cell}", answer)
        for question, answer, path, cell in ASKED.findall("\n\n".join(cell.source for cell in cells))
    ]


def by_question() -> Link:
    """Where the questions stand."""
    text = f"“{CATCHING}” and {len(questions()) - 1} more."
    return Link("By your question", "notebooks/questions.html", text)


def ways() -> str:
    """The page of the three ways through."""
    time = dict(WAY.findall(readme()))
    short = [link for link in notebooks() if Path(link.address).name.startswith(SHORT)]
    parts = [
        Section(links=[SEARCH]),
        Section(
            f"An afternoon, {time['short']}: why there is a pause, why words drip, and what is kept.",
            heading="The short way",
            name="short",
            links=short,
        ),
        Section(
            f"In the order of the numbers, {time['whole']}. Each notebook runs by itself.",
            heading="The whole way",
            name="whole",
            links=notebooks(),
        ),
        Section(
            "What people ask, each with its answer in a sentence, and the cell that shows it.",
            heading="The third way",
            name="question",
            links=[by_question(), Link(TITLE, "index.html", "Let it write, take the steps, change a word.")],
        ),
    ]
    return build("Three ways through", parts, QUESTION)


def index(diary: Trace, published: Path | None = None) -> str:
    """The page to send: live, stepper, what-if, and where to go on."""
    prompt, tokens = diary.sequences[0].prompt, diary.sequences[0].tokens
    by = next(n for n, token in enumerate(tokens) if token.text == "by")
    passes = [step.phase for step in diary.runs[0].passes]
    first = 1 + passes.index("decode")  # counted from 1, as in an address
    name = first + by - prompt  # the pass that runs it
    live = Section(
        QUESTION,
        Live(published=published),
        (
            "The pause is prefill: all tokens of the text run in one pass. Here a token is a word or a full "
            "stop. Out comes a probability for each word that the model knows, and one of them is drawn. The "
            "drip is decode: the word that came goes in behind the others, and the next one comes out.",
            "Each token that runs leaves a row: its key, K, by which later tokens find it, and its value, V, "
            "which they take from it. The KV cache keeps the rows. So a pass of the drip runs one token, the "
            "newest. Without the cache it runs the whole text again.",
        ),
    )
    stepper = Section(
        (
            "A diary that was recorded, and now you take the steps: press Next. Each token looks at those "
            "before it and takes something from them. The larger a blue square, the more it takes. The box "
            "under the triangle keeps the rows from pass to pass: it is the KV cache.",
            "All this happens in 16 places. The model has 4 layers, one on top of the other, and each layer "
            "has 4 heads, which look for different things.",
        ),
        Stepper(lighter(diary)),
        (
            "At “by”, head 3 of layer 1 finds the name, and the diary is signed with it.",
            "Now turn the cache off and step again. The words are the same, but for each of them every token "
            "runs again, and its row is dropped. The line under the board says what bounds a pass. "
            "The lab shows how that changes, for a model, a card and a prompt that you choose.",
        ),
        heading="What is kept",
        name="kept",
        moments=(
            Link("The first step of decode", f"#pass={first}&at=view1"),
            Link("“by” finds the name", f"#pass={name}&layer=1&head=3&at=view1"),
            Link("The same without the cache", f"#pass={name}&layer=1&head=3&cache=off&at=view1"),
            Link("The lab: training, prefill, decode", "#panels=lab&at=view1"),
        ),
    )
    what_if = Section(
        (
            "What was kept for one text can serve another one, as far as both begin alike. What stands "
            "before the change may be kept: no token looks ahead, so nothing there can have seen it.",
            "Here a second model, a toy, is so small that you can work it out on paper. Each word carries a "
            "number, its V in layer 1.",
            "Four heads take means of the numbers so far: of every second word, 0 while there is none, of "
            "the newest, of the first, and of all. The mean of these four is the token's V in layer 2.",
            "The cache was filled with “Today weather is so nice”. Then weather was changed from 20 to 8. "
            "Change another number, put a word in or take one out.",
        ),
        WhatIf(),
        "A key says here only where a token stands. In a real model it is made as the value is, and goes "
        "stale "
        "with it.",
        heading="When a kept row goes stale",
        name="stale",
        moments=(
            Link(
                "A name put in front", "#words=Oslo,Today,weather,is,so,nice&numbers=8,10,20,1,5,14&at=view3"
            ),
            Link("The last word changed", "#words=Today,weather,is,so,warm&numbers=10,20,1,5,12&at=view3"),
        ),
    )
    table = Section(body=phases(), heading="Prefill against decode", name="phases")
    step = Section(
        STEP,
        StepTime(users=1),
        heading="What a step takes, on a card of your choice",
        name="step",
        moments=(
            Link("64 users share the weights", "#case-users=64&at=view4"),
            Link("Long chats: the rows take longest", "#case-users=64&case-text=8192&at=view4"),
            Link("70 billion numbers on 4 cards", f"#{SEVENTY}&at=view4"),
        ),
    )
    time = dict(WAY.findall(readme()))
    more = (
        Link("The short way", "ways.html", f"{time['short']}: an afternoon, and the question is answered."),
        Link("The whole way", "ways.html#whole", f"{time['whole']}, from four heads to several machines."),
        by_question(),
        SEARCH,
        Link("Film", "film.html", f"{LENGTH:.0f} seconds without a voice."),
        Link("Words", "notebooks/words.html", "What each word means, and the cell that shows it."),
        Link("Gallery", "gallery.html", "A toy, a diary, a published model and an engine, to step through."),
        Link("Worksheet", "worksheet.html", "The walk by hand, to print."),
        Link("For teachers", "teaching.html", "Three lessons, two more worksheets, slides."),
        Link("Prefill against decode", "card.html", "Both on one card, to print."),
        Link("Code", f"{launch.GITHUB}{launch.repository()}", "Run the notebooks yourself, in a minute."),
    )
    books = Section(
        "Notebooks go from four heads on paper to a PyTorch decoder that you train, cache and step through, "
        "and on to what a word costs and what people do about it.",
        heading="Work it out yourself",
        name="books",
        links=more,
    )
    owner, site = launch.repository().split("/")
    picture = f"https://{owner}.github.io/{site}/{PREVIEW.name}"
    sections = [live, stepper, table, what_if, step, books]
    return build(TITLE, sections, QUESTION, picture, beside=True, style=TABLE_STYLE)


def lighter(trace: Trace) -> Trace:
    """The trace with as many digits as are shown; without its shapes: the lab's are a chosen model's."""
    message = json.loads(trace.to_json(), parse_float=lambda digits: round(float(digits), 4))
    for run in message["runs"]:
        for event in run["passes"]:
            event["shapes"] = []
    return Trace.from_json(json.dumps(message))


def six_diaries() -> EngineTrace:
    """Serve three texts that begin alike and three others, on 12 pages of 6 rows: pages run out once."""
    from helpers.model import evaluate, shipped  # with PyTorch: takes a second
    from helpers.recording.engine import StepRecorder
    from helpers.serve.engine import Engine

    model, tokenizer = shipped.load()
    begin = "Mia writes from Oslo. Monday is sunny in Oslo. Mia swam in the lake."
    alike = (f"{begin} {more}" for more in ("Today weather is so", "Today weather is cold", "A fox slept in"))
    others = (tokenizer.encode(diary.text) for diary in evaluate.held_out_diaries(6, seed=1)[1:4])
    a, c, e = map(tokenizer.encode, alike)
    b, d, f = (tokens[:n] for tokens, n in zip(others, (14, 22, 10), strict=True))
    coming = {0: [("A", a, 12), ("B", b, 5)], 1: [("C", c, 12)], 4: [("D", d, 10)], 7: [("E", e, 9)]}
    coming[10] = [("F", f, 8)]
    engine = Engine(model, slots=3, budget=24, n_pages=12, page_size=6, eos_ids=())
    with StepRecorder(engine.scheduler, lambda token: tokenizer.decode([token]), "diaries") as recorder:
        for n in range(100):
            for request in coming.pop(n, []):
                engine.add(*request)
            if engine.busy:
                engine.step()
    return recorder.trace


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
            "A model that the series trains goes on with a diary. It signs with the name that it read "
            "before: in layer 1, head 3 of “by” looks at the second Mia.",
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
    for name, (title, trace, output) in shown.items():
        stepper = Stepper(trace, layer=min(layer for layer, _ in trace.recorded))
        pages[name] = build(
            title, [Section(output, stepper), Section(links=[Link("Gallery", "gallery.html")])], output
        )
    links = [Link(title, name, output) for name, (title, _, output) in shown.items()]
    title, output = (
        "Six diaries, twelve pages",
        "An engine goes on with six diaries at once, on a pool of 12 pages of 6 rows each. A, C and E begin "
        "alike and share pages. Where no page is free, the youngest is preempted, and comes again.",
    )
    pool = Pool(six_diaries())
    pages["pool.html"] = build(
        title, [Section(output, pool), Section(links=[Link("Gallery", "gallery.html")])], output
    )
    links.append(Link(title, "pool.html", output))
    title, output = "What a step takes", "A model, a card, users of your choice, and one equation."
    case = StepTime()
    pages["step.html"] = build(
        title, [Section(STEP[1:], case), Section(links=[Link("Gallery", "gallery.html")])], output
    )
    links.append(Link(title, "step.html", output))
    links.append(Link("Fingerprints", "museum.html", "Bugs of real projects: where two runs part."))
    back = Link(TITLE, "index.html", "Let it write, take the steps, change a word.")
    all_runs = Section(f"{len(links)} pages: recorded runs, and one equation.", links=[*links, back])
    return {**pages, "gallery.html": build("Gallery", [all_runs])}


def museum() -> str:
    """The page of notebook 22's poster, with the threads; the picture is the notebook's stored one."""
    from helpers.museum import EXHIBITS  # with PyTorch: takes a second

    book = json.loads((ROOT / "notebooks" / "22_museum.ipynb").read_text(encoding="utf-8"))
    outputs = next(cell["outputs"] for cell in book["cells"] if cell["id"] == "c22-poster")
    poster = "".join(next(one["data"]["text/html"] for one in outputs if "text/html" in one["data"]))
    rooms = enumerate(EXHIBITS.values(), 1)
    threads = [Link(room.reported, room.address, f"room {n}: {room.users}") for n, room in rooms]
    message = (
        "Eleven bugs that real projects shipped, planted in the decoder of this series, and one report that "
        "was none. Each picture compares two runs that were made to say the same words, one repaired and one "
        "as it was shipped. A column is a pass, a line a layer; the more ink, the further apart. The ring "
        "marks where they part first."
    )
    book_link = Link("22 The museum of bugs", "notebooks/22_museum.html", "Find the causes yourself.")
    shown = f'<div class="jp-OutputArea-child">{poster}</div>'  # as a notebook's page shows it
    sections = [Section(message, body=shown), Section(links=threads, heading="Reported in", name="threads")]
    sections.append(Section(links=[book_link, Link("Gallery", "gallery.html")]))
    dark = f"@media (prefers-color-scheme: dark) {{ {FIGURES} }}"
    return build("Fingerprints", sections, message, style=dark)


def led_on() -> dict[str, str]:
    """A page at each address of MOVED, by file name, that leads to the new one."""
    to = '<!DOCTYPE html><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">{0}</a>\n'
    return {f"notebooks/{old}.html": to.format(f"{new}.html") for old, new in MOVED.items()}


def model_file(named: str) -> Path | None:
    """The file that was named, or the published one, kept or fetched; None where it cannot be had."""
    if named:
        return Path(named)
    from helpers.model import published  # with PyTorch: takes a second

    found = published.gguf()
    return found.path if found else None


def _and(numbers: list[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def main() -> None:
    """Write the files and say where they are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--notebooks", action="store_true", help="the notebooks too")
    parser.add_argument(
        "--model",
        nargs="?",
        const="",
        metavar="FILE",
        help="a GGUF file to lay beside the page; without FILE the published one",
    )
    wanted = parser.parse_args()
    published = None if wanted.model is None else model_file(wanted.model)
    diary = load_diary()
    pages = {"index.html": index(diary, published), "ways.html": ways(), **gallery(diary)}
    pages |= {"worksheet.html": worksheet(), "worksheet-answers.html": worksheet(True), "card.html": card()}
    pages["museum.html"] = museum()
    pages["film.html"] = film()
    pages |= {"teaching.html": teaching(), "slides.html": slides(), **sheets()}
    (ROOT / "build" / "notebooks").mkdir(parents=True, exist_ok=True)
    if wanted.notebooks:
        from make_search import search  # takes a second to import, and so does:
        from render_notebooks import render

        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            pages[f"notebooks/{path.stem}.html"] = render(path)
        pages["search.html"] = search(pages, questions(), ROOT / "notebooks")
        pages |= led_on()
    for file in filter(None, (PREVIEW, *FILMS, published)):
        shutil.copy(file, ROOT / "build")
    name, text = file_script(Live.file)
    pages[name] = text
    if wanted.notebooks:
        pages[f"notebooks/{name}"] = text
    for name, text in pages.items():
        write_whole(ROOT / "build" / name, text)
        print(ROOT / "build" / name, f"{len(text.encode()) / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
