"""Build the published site: a book of the notebooks and of pages with views, and what is printed for a class.

    python -m tools site                # build/: all of it, in about half a minute
    python -m tools site --model        # also a published model (98 MB), for a button on the main page
    python -m tools site --print        # only worksheets, card and slides, without Sphinx

The pages can be opened from disk, under any path, with no network and no kernel. Notebooks are shown as they
are stored: nothing is run.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import nbformat

from helpers.recording.diary import load_diary
from helpers.recording.toy import record_toy
from helpers.stepper import Live, Pool, Stepper, StepTime, WhatIf
from helpers.stepper.page import Link, Section, file_script
from helpers.stepper.view import View
from helpers.trace import EngineTrace, Trace
from tools import launch
from tools.book.build import BookPage, build_book, page_markdown, toctree
from tools.book.search import SEARCH_PAGE, write_search_index
from tools.film_page import FILMS, film_page
from tools.handout import comparison_card_page, comparison_table_html
from tools.launch import DATA, ROOT
from tools.sheets import sheet_pages
from tools.sizes import WAYS
from tools.teaching import slides_page, teaching_page
from tools.worksheet import worksheet_page

TITLE = "Watch it decode"
QUESTION = (
    "You press Enter. A pause; then words drip onto the screen, one by one. Why the pause, why the drip, and "
    "what is kept in between?"
)
PREVIEW = ROOT / "notebooks" / "pictures" / "race.png"  # shown by messengers with the page's address
NOTEBOOK_ROW = re.compile(
    r"^\| \[(?P<name>.+?)\]\((?P<path>notebooks/\S+)\.ipynb\) \| (?P<question>.+?) \| "
    r"(?P<minutes>[\d +]*?) *\|$",
    re.MULTILINE,
)
QUESTION_ROW = re.compile(
    r"^\| (?P<question>[^|[]+\?)(?: \(\[[^|]+\))? \| (?P<answer>[^|]+) \| "
    r"\[\w+\]\((?P<path>\w+)\.ipynb(?P<cell>[^)]*)\) \|$",
    re.MULTILINE,
)
PARTS = ("Understand it", "Build it", "Size and pay for it", "Find what is wrong")  # of the book's menu
OTHERS = ("film", "For teachers <teaching>")
GALLERY = ("gallery", "toy", "diary", "smollm2", "pool", "step", "museum")
HIDDEN = {  # pages that are in no menu
    "search": SEARCH_PAGE,
    "404": BookPage("No such page", [Section("The menu and the search lead to all pages.")], "Not found."),
}
STEP = (
    "The models above are small, and your browser runs them. Here one equation says how long a decode step "
    "has to take with a model that many people use, on a card that many rent: it reads the weights and each "
    "user's KV entries, and computes.",
    "A real step takes longer; what is left out is listed under the bars. A link keeps your case, so "
    "that you can send it.",
)
SEVENTY = "case-as=Llama-3.1-70B&case-users=32&case-cards=4&case-collective=15"
CATCHING = "How many users fit on my card?"
WAY = re.compile(r"\*\*(?P<way>[^*\n]+)\*\*, (?P<time>\d+ (?:minutes|hours)[^:\n]*):")


def readme_text() -> str:
    """Return the Markdown of the README, which lists the notebooks and the learning paths through them."""
    return (ROOT / "README.md").read_text(encoding="utf-8")


def notebook_links() -> list[Link]:
    """Return one link per notebook, in the order of the README's table.

    The note of a link is the notebook's question. If the README gives the notebook's duration in minutes, the
    duration is written before the question.
    """
    return [
        Link(name, f"{path}.html", f"{minutes} min · {question}" if minutes else question)
        for name, path, question, minutes in NOTEBOOK_ROW.findall(readme_text())
    ]


def links_of_way(way: str) -> list[Link]:
    """Return one link per notebook of a way through, in the order of the way."""
    return [link for link in notebook_links() if Path(link.address).name.startswith(WAYS[way])]


def question_links() -> list[Link]:
    """Return one link per question in questions.ipynb. It leads to the cell that shows the answer.

    The note of a link is the answer in one sentence.
    """
    cells = nbformat.read(ROOT / "notebooks" / "questions.ipynb", as_version=4).cells
    return [
        Link(question, f"notebooks/{path}.html{cell}", answer)
        for question, answer, path, cell in QUESTION_ROW.findall("\n\n".join(cell.source for cell in cells))
    ]


def link_to_questions() -> Link:
    """Return a link to the page that lists all questions."""
    text = f"“{CATCHING}” and {len(question_links()) - 1} more."
    return Link("By your question", "notebooks/questions.html", text)


def learning_paths_page() -> BookPage:
    """Return the page with the ways through."""
    time = dict(WAY.findall(readme_text()))
    parts = [
        Section(
            f"An afternoon, {time['The short way']}: why there is a pause, why words drip, and what is kept.",
            heading="The short way",
            name="short",
            links=links_of_way("The short way"),
        ),
        Section(
            f"In the order of the numbers, {time['The whole way']}. Each notebook runs by itself.",
            heading="The whole way",
            name="whole",
            links=notebook_links(),
        ),
        *(
            Section(f"{time[way]}.", heading=way, name=way.split()[0].lower(), links=links_of_way(way))
            for way in PARTS
        ),
        Section(
            "What people ask, each with its answer in a sentence, and the cell that shows it.",
            heading="By your question",
            name="question",
            links=[link_to_questions()],
        ),
    ]
    return BookPage("Ways through", parts, QUESTION)


def main_page(diary: Trace, published: Path | None = None) -> BookPage:
    """Return the main page.

    It has four interactive views (live, stepper, what-if and step time), a comparison table of prefill and
    decode, and links to the other pages.

    Args:
        diary: the trace that the stepper shows.
        published: the path of a GGUF file that readers can load with a button in the live view. `main` copies
            the file to the page's folder.
    """
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
            "stop. The result is a probability for each word that the model knows, and one word is drawn. "
            "The drip is decode: this word is appended to the text, and the next one is drawn.",
            "Each token that runs leaves a KV entry in each layer: its key, K, by which later tokens find "
            "it, and its value, V, which they take from it. The KV cache keeps the entries. So a pass of the "
            "drip runs one token, the newest. Without the cache it runs the whole text again.",
        ),
    )
    stepper = Section(
        (
            "Here is a recorded diary. Press Next to step through it. Each token attends to those "
            "before it and takes something from them. The larger a blue square, the more it takes. The box "
            "under the triangle keeps the KV entries from pass to pass: it is the KV cache.",
            "All this happens in 16 places. The model has 4 layers, one on top of the other, and each layer "
            "has 4 heads, which look for different things.",
        ),
        Stepper(round_trace(diary)),
        (
            "At “by”, head 3 of layer 1 finds the name, and the diary is signed with it.",
            "Now turn the cache off and step again. The words are the same, but for each of them every token "
            "runs again, and its KV entries are dropped. The line under the board says what bounds a pass. "
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
            "What was kept for one text can serve another one, as far as both begin with the same words. The "
            "KV entries before the change may be kept: no token attends to later ones, so they cannot depend "
            "on it.",
            "Here a second model, a toy, is so small that you can work it out on paper. Each word carries a "
            "number, its V in layer 1.",
            "Four heads take means of the numbers so far: of every second word (0 as long as there is none), "
            "of the newest, of the first, and of all. The mean of these four is the token's V in layer 2.",
            "The cache was filled with “Today weather is so nice”. Then weather was changed from 20 to 8. "
            "Change another number, insert a word or remove one.",
        ),
        WhatIf(),
        "Here a key holds only the position of a token. In a real model it is computed as the value is, and "
        "goes stale with it.",
        heading="When a KV entry goes stale",
        name="stale",
        moments=(
            Link(
                "A name put in front", "#words=Oslo,Today,weather,is,so,nice&numbers=8,10,20,1,5,14&at=view3"
            ),
            Link("The last word changed", "#words=Today,weather,is,so,warm&numbers=10,20,1,5,12&at=view3"),
        ),
    )
    table = Section(body=comparison_table_html(), heading="Prefill against decode", name="phases")
    step = Section(
        STEP,
        StepTime(users=1),
        heading="What a step takes, on a card of your choice",
        name="step",
        moments=(
            Link("64 users share the weights", "#case-users=64&at=view4"),
            Link("Long chats: the KV cache takes longest", "#case-users=64&case-text=8192&at=view4"),
            Link("70 billion numbers on 4 cards", f"#{SEVENTY}&at=view4"),
        ),
    )
    books = Section(
        "Notebooks go from four heads on paper to a PyTorch decoder that you train, cache and step through, "
        "and on to what a word costs and what people do about it.",
        heading="Work it out yourself",
        name="books",
        links=[
            Link("Ways through", "ways.html", "An afternoon, all of it, or what you have to do."),
            link_to_questions(),
            Link("Worksheet", "worksheet.html", "The walk by hand, to print."),
            Link("Prefill against decode", "card.html", "Both on one card, to print."),
        ],
    )
    return BookPage(TITLE, [live, stepper, table, what_if, step, books], QUESTION)


def round_trace(trace: Trace) -> Trace:
    """Return a copy of a trace that takes less space in a page.

    Floating-point values are rounded to six significant digits, which is more than the page shows. The tensor
    shapes are left out, because the page's lab panel computes them.
    """
    message = json.loads(trace.to_json(), parse_float=lambda digits: float(f"{float(digits):.6g}"))
    for run in message["runs"]:
        for event in run["passes"]:
            event["shapes"] = []
    return Trace.from_json(json.dumps(message))


def record_six_diaries() -> EngineTrace:
    """Run six requests on an engine whose pool has 12 pages of 6 KV entries, and return the trace.

    Three of the requests share a prefix, and one request is preempted once.
    """
    from helpers.model import evaluate, shipped  # with PyTorch: takes a second
    from helpers.recording.engine import StepRecorder
    from helpers.serve.engine import Engine

    model, tokenizer = shipped.load_shipped()
    begin = "Mia writes from Oslo. Monday is sunny in Oslo. Mia swam in the lake."
    alike = (f"{begin} {more}" for more in ("Today weather is so", "Today weather is cold", "A fox slept in"))
    others = (tokenizer.encode(diary.text) for diary in evaluate.held_out_diaries(6, seed=1)[1:4])
    a, c, e = map(tokenizer.encode, alike)
    b, d, f = (tokens[:n] for tokens, n in zip(others, (14, 22, 10), strict=True))
    coming = {0: [("A", a, 12), ("B", b, 5)], 1: [("C", c, 12)], 4: [("D", d, 10)], 7: [("E", e, 9)]}
    coming[10] = [("F", f, 8)]
    engine = Engine(model, slots=3, token_budget=24, n_pages=12, page_size=6, eos_ids=())
    with StepRecorder(engine.scheduler, lambda token: tokenizer.decode([token]), "diaries") as recorder:
        for n in range(100):
            for request in coming.pop(n, []):
                engine.add(*request)
            if engine.has_unfinished_requests:
                engine.step()
    return recorder.trace


def gallery_pages(diary: Trace) -> dict[str, BookPage]:
    """Return the gallery's pages, by name.

    There is one page for each view. The page "gallery" links to these pages and to "museum".
    """
    published = Trace.load(DATA / "smollm2.json")
    shown: dict[str, tuple[str, View, str]] = {
        "toy": (
            "A toy of two layers",
            Stepper(record_toy(n_layers=2)),
            "Four heads that you can follow by hand, in two layers, on “Today weather is so”.",
        ),
        "diary": (
            "A signed diary",
            Stepper(diary),
            "A model that the series trains goes on with a diary. It signs with the name that it read "
            "before: in layer 1, head 3 of “by” attends to the second Mia.",
        ),
        "smollm2": (
            "SmolLM2 on the weather",
            Stepper(published, layer=min(layer for layer, _ in published.recorded)),
            f"{published.model.name} goes on with “Today's weather is so”. It has 30 layers of 9 heads, with "
            "3 heads of K and V. Shown are heads 1, 3 and 9 of layers 2, 17 and 24; the others ran too, and "
            "were left out to keep the page small. In layer 24 nearly all of the weight lies on the first "
            "token: heads that find nothing rest there.",
        ),
        "pool": (
            "Six diaries, twelve pages",
            Pool(record_six_diaries()),
            "An engine goes on with six diaries at once, on a pool of 12 pages of 6 KV entries each. A, C "
            "and E begin alike and share pages. Where no page is free, the youngest is preempted, and comes "
            "again.",
        ),
        "step": (
            "What a step takes",
            StepTime(),
            "A model, a card, users of your choice, and one equation.",
        ),
    }
    pages = {}
    for name, (title, view, output) in shown.items():
        before = STEP[1:] if name == "step" else output
        pages[name] = BookPage(title, [Section(before, view)], output)
    links = [Link(title, f"{name}.html", output) for name, (title, _, output) in shown.items()]
    links.append(Link("Fingerprints", "museum.html", "Bugs of real projects: where two runs part."))
    text = f"{len(links)} pages: recorded runs, and one equation."
    return {"gallery": BookPage("Gallery", [Section(text, links=links)], text), **pages}


def fingerprints_page() -> BookPage:
    """Return the page on the museum of bugs: a poster of all rooms, and links to the bug reports.

    For each report, the poster compares a run of the code as it was shipped with a run of the repaired code.
    """
    from helpers import plots
    from helpers.museum import EXHIBITS  # with PyTorch: the ten rooms take some seconds

    prints = {f"room {n}": room.fingerprint() for n, room in enumerate(EXHIBITS.values(), 1)}
    poster = plots.fingerprint_grids(prints, "The poster").html()
    rooms = enumerate(EXHIBITS.values(), 1)
    threads = [Link(room.issue, room.issue_url, f"room {n}: {room.symptom}") for n, room in rooms]
    message = (
        "Nine bugs that real projects shipped, planted in the decoder of this series, and one report that "
        "was none. Each picture compares two runs over the same tokens, in most rooms one repaired and one "
        "as it was shipped. A column is a pass and a row is a layer; the darker a cell, the further apart "
        "the two are. The ring marks the first difference."
    )
    book_link = Link("22 The museum of bugs", "notebooks/22_museum.html", "Find the causes yourself.")
    sections = [Section(message, body=poster), Section(links=threads, heading="Reported in")]
    sections.append(Section(links=[book_link]))
    return BookPage("Fingerprints", sections, message)


def book_menu() -> str:
    """Return the book's menu as Markdown: four ways through, other notebooks, and what is looked up."""
    names = {
        Path(link.address).stem: f"{link.text} <{link.address.removesuffix('.html')}>"
        for link in notebook_links()
    }
    parts = {way: [name for name in names if name.startswith(WAYS[way])] for way in PARTS}
    looked_up = ["questions", "words"]
    taken = {*sum(parts.values(), looked_up)}
    parts["And further"] = [name for name in names if name not in taken]
    trees = [toctree([names[name] for name in found], part) for part, found in parts.items()]
    more = [names[name] for name in looked_up]
    return "\n".join(
        [toctree(["ways"]), *trees, toctree([*more, *OTHERS], "To look up"), toctree(GALLERY, "Gallery")]
    )


def book_pages(published: Path | None = None) -> dict[str, str]:
    """Return the Markdown of the book's pages that are not notebooks, by name.

    Args:
        published: the GGUF file for the main page; see `main_page`.
    """
    diary = load_diary()
    front = page_markdown(main_page(diary, published), {"og:image": launch.site_url() + PREVIEW.name})
    pages = {"ways": learning_paths_page(), "film": film_page(), **gallery_pages(diary)}
    pages["museum"] = fingerprints_page()
    made = {name: page_markdown(page) for name, page in pages.items()}
    hidden = {name: page_markdown(page, {"orphan": "true"}) for name, page in HIDDEN.items()}
    return {"index": f"{front}\n{book_menu()}", **made, **hidden, "teaching": teaching_page()}


def pages_to_print() -> dict[str, str]:
    """Return the worksheets, the card and the slides, as {file name: HTML}. The book is without them."""
    pages = {"worksheet.html": worksheet_page(), "worksheet-answers.html": worksheet_page(True)}
    return pages | {"card.html": comparison_card_page(), "slides.html": slides_page(), **sheet_pages()}


def build_site(folder: Path, published: Path | None = None) -> None:
    """Build the whole site.

    Args:
        folder: the site's folder.
        published: the GGUF file for the main page; see `main_page`.
    """
    pages, notebooks = book_pages(published), sorted((ROOT / "notebooks").glob("*.ipynb"))
    build_book(pages, notebooks, folder)
    write_search_index(folder, question_links(), ROOT / "notebooks")
    for name, text in (*pages_to_print().items(), file_script(Live.file)):
        (folder / name).write_text(text, encoding="utf-8")
    for file in filter(None, (PREVIEW, *FILMS, published)):
        shutil.copy(file, folder)


def main() -> None:
    """Build the site in build/, and print the path and the size in kB of each page."""
    parser = launch.argument_parser(__doc__)
    parser.add_argument("--print", action="store_true", help="only the worksheets, the card and the slides")
    parser.add_argument("--model", action="store_true", help="a published model beside the page")
    wanted, published, folder = parser.parse_args(), None, ROOT / "build"
    if wanted.print:
        folder.mkdir(exist_ok=True)
        for name, text in pages_to_print().items():
            (folder / name).write_text(text, encoding="utf-8")
    elif not find_spec("sphinx"):
        sys.exit("the site needs Sphinx: `python -m pip install -r tools/requirements.txt`, or use --print")
    else:
        if wanted.model:
            from helpers.model.published import find_gguf  # with PyTorch: takes a second

            published = find_gguf()
        build_site(folder, published)
    for path in sorted(folder.rglob("*.html")):
        print(path, f"{path.stat().st_size / 1000:,.0f} kB")
