"""Take stills of a notebook's interactive views, with Chromium.

A still is a picture of a view, with the view's sentences as text. It is shown where the view cannot run.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nbformat import NotebookNode
from PIL import Image
from playwright.sync_api import Browser, Page

from helpers.stepper import Live, script
from helpers.stepper.page import escape_for_script
from helpers.stepper.still import FOLDER, Still, still_name
from tools.chromium import find_chromium
from tools.pictures import running_chromium

WIDTH = 424  # CSS px: in the 360 that a phone leaves for a picture, the smallest letters are still 11 high
SHARPNESS, GAP = 2, 8
COLOURS = 128
STATE = "application/vnd.jupyter.widget-state+json"
READY = {"live": ".wid-acts"}  # an element that appears when a view that takes some time is done
# Controls are hidden in a picture, and so are the view's sentences, which are below it as text.
PICTURED = """
body { margin: 0; padding: 0; max-width: none; background: none; }
.wid-view { margin: 0 !important; }
.wid-view :is(.wid-controls, .wid-top, .wid-more:not([open]), .wid-paste, .wid-say, .wid-sentence,
.wid-readout, .wid-panel > p, .wid-further, .wid-edit, .wid-who, .wid-acts, .wid-own, .wid-drawer-name,
.wid-sizes),
.wid-stepper > :not(.wid-rail, :has(.wid-recorded)), .wid-lab > :not(.wid-recorded), .wid-foot,
.wid-below > :not(.wid-nextbox), .more .wid-legend { display: none !important; }
"""
# The sentences, as text; what else is in sight, a line for each block; of what is pressed, what it is set to.
READ_TEXT = """(view) => {
  const plain = (text) => text.replace(/[\\u2066-\\u2069\\u200b]/g, "").replace(/\\s+/g, " ").trim();
  const all = (selector) => [...view.querySelectorAll(selector)].map((one) => plain(one.textContent));
  const read = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    const style = node.nodeType === Node.ELEMENT_NODE && getComputedStyle(node);
    if (!style || style.display === "none" || style.visibility === "hidden") return "";
    if (node.type === "range" || node.matches(".wid-unseen")) return "";
    if (node.tagName === "SELECT") return ` ${node.selectedOptions[0].text} `;
    if (node.ariaPressed === "false") return "";
    if (node.tagName === "INPUT") return ` ${node.value} `;
    const text = [...node.childNodes].map(read).join("");
    const line = /^(P|TR|LI|H3|LABEL|SECTION|DIV)$/.test(node.tagName);
    return style.display === "inline" && node.tagName !== "B" ? text : line ? `\\n${text}\\n` : ` ${text} `;
  };
  const words = all(view.matches(".wid-stepper") ? ".wid-recorded .wid-sentence"
    : ".wid-sentence, .wid-panel > p, .wid-drawer-name, .wid-sizes");
  const unseen = all("div.wid-unseen p");
  const seen = read(view).split("\\n").map(plain).filter((line) => line);
  return { alt: view.ariaLabel.split(". ")[0], words, seen: unseen.length ? unseen : seen };
}"""


class ViewInputs(NamedTuple):
    """What a view gets from Python.

    Attributes:
        data: the view's data, as JSON.
        options: the view's options.
        file: the content of the file that the view runs, such as a model's weights; b"" if there is no file.
    """

    data: str
    options: dict[str, Any]
    file: bytes


def view_inputs(book: NotebookNode) -> Iterator[ViewInputs]:
    """Yield the inputs of each view in a notebook, from the widget state in the notebook's metadata.

    The notebook must have been run with `execute_notebook(…, keep_widgets=True)`.
    """
    kept = book.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    for one in kept.values():
        if "view" in (options := one["state"].get("options", {})):
            yield ViewInputs(one["state"]["data"], options, view_file(options))


def take_stills(book: NotebookNode, retake_all: bool) -> bool:
    """Take a still of each view in a notebook that has no still, or whose sentences have changed.

    Without Chromium, existing stills are kept as they are.

    Args:
        book: the notebook, with the state of its widgets.
        retake_all: whether to take new stills of all views, as after a change in their appearance.

    Returns:
        Whether a still was taken.

    Raises:
        FileNotFoundError: a view has no still, and there is no Chromium to take one.
    """
    shown = {still_name(*one): one for one in view_inputs(book)}
    kept = {name: Still.load(name) for name in shown}
    if not find_chromium():
        if None in kept.values():
            raise FileNotFoundError("a view has no picture yet, and there is no Chromium to take one")
        return False
    taken = False
    with running_chromium() as browser:
        for name, (data, options, _) in shown.items():
            old = kept[name]
            if (
                retake_all
                or not old
                or take_still(browser, data, options, with_picture=False).words != old.words
            ):
                new = take_still(browser, data, options)
                for path in FOLDER.glob("*.png"):  # the same under the name that its data had before
                    if path.read_bytes() == new.png:
                        remove_still(path)
                new.save(name)
                taken = True
            elif (data, options) != (old.data, old.options):  # unchosen models or cards have changed
                replace(old, data=data, options=options).save(name)
    return taken


def remove_unused_stills(books: Iterable[NotebookNode]) -> None:
    """Remove all stills whose pictures do not appear in the outputs of these notebooks."""
    outputs = [out for book in books for cell in book.cells for out in cell.get("outputs", [])]
    shown = {
        base64.b64decode(out["data"]["image/png"]) for out in outputs if "image/png" in out.get("data", {})
    }
    for path in FOLDER.glob("*.png"):
        if path.read_bytes() not in shown:
            remove_still(path)


def remove_still(png: Path) -> None:
    """Remove a still's two files: its picture, `png`, and the JSON file next to it."""
    png.unlink()
    png.with_suffix(".json").unlink()


def view_file(options: dict[str, Any]) -> bytes:
    """Return the content of the file with the model that a view runs, or b"" if its options name no file."""
    return Live.file.read_bytes() if "file" in options else b""


def open_view(browser: Browser, folder: Path, data: str, options: dict[str, Any]) -> Page:
    """Open a page that contains only this view, in the light theme and without animations.

    The viewport has the width of a still.

    Args:
        browser: the browser.
        folder: a temporary folder, to which the page is written.
        data, options: the inputs of the view.
    """
    path, file = folder / "page.html", base64.b64encode(view_file(options)).decode()
    bytes_of = f'Uint8Array.from(atob("{file}"), (one) => one.charCodeAt(0)).buffer'
    mount = f"mountView(document.body, {data}, {json.dumps(options)}, async () => {bytes_of})"
    code = f"{script.bundle()}\nconst view = {{ ...{escape_for_script(mount)} }};"
    style = f"<style>{script.stylesheet()}{PICTURED}</style>"
    path.write_text(f'<!doctype html><meta charset="utf-8">{style}<body><script>{code}</script>', "utf-8")
    found = browser.new_page(
        viewport={"width": WIDTH, "height": 900},
        device_scale_factor=SHARPNESS,
        color_scheme="light",
        reduced_motion="reduce",
    )
    found.goto(path.as_uri())
    return found


def take_still(browser: Browser, data: str, options: dict[str, Any], with_picture: bool = True) -> Still:
    """Take the still of a view.

    Args:
        browser: the browser.
        data, options: the inputs of the view.
        with_picture: whether to take the picture, which takes most of the time. Without it, the still
            contains only text.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(open_view(browser, Path(folder), data, options)) as page,
    ):
        view = page.locator(".wid-view")
        mounted = page.evaluate_handle("view")
        images, words, seen = list[Image.Image](), list[str](), list[str]()
        for values in (moments := mounted.evaluate("(view) => view.stills()")):
            mounted.evaluate("(view, values) => view.goTo(values)", values)
            page.evaluate("(more) => document.body.classList.toggle('more', more)", values != moments[-1])
            page.locator(READY.get(options["view"], ".wid-view")).wait_for(state="attached")
            told = view.evaluate(READ_TEXT)
            words += told["words"]
            seen += told["seen"]
            if with_picture:
                page.evaluate("document.activeElement.blur()")
                images.append(Image.open(io.BytesIO(view.screenshot(omit_background=True))))
        return Still(
            data, options, told["alt"], WIDTH, words, seen, stack_images(images) if with_picture else b""
        )


def stack_images(images: list[Image.Image]) -> bytes:
    """Stack pictures vertically, with gaps, and return the result as a PNG with a palette of COLOURS."""
    gap, png = GAP * SHARPNESS, io.BytesIO()
    sheet = Image.new("RGBA", (images[0].width, sum(image.height + gap for image in images) - gap))
    y = 0
    for image in images:
        sheet.paste(image, (0, y))
        y += image.height + gap
    few = sheet.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(png, "PNG", optimize=True)
    return png.getvalue()
