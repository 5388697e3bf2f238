"""Compare what a stepper's page shows in each of its states with what it must show."""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from helpers.stepper.format import percent
from helpers.trace import Trace
from tests.machine import ROOT, find_node, lacking
from tests.made_traces import Look
from tests.written import number

SIGNS = {"now": "●", "earlier": "○", "masked": "×", "coming": "-"}
DENSE = 25  # columns from which the board is a canvas
DIGITS = 8  # and up to which weights are numbers and what is masked is marked

# Everything that a page of one stepper shows, by what it is about.
READ = """() => {
  const root = document.querySelector('.wid-stepper');
  const all = (selector, read) => [...root.querySelectorAll(selector)].map(read);
  const text = (node) => node.textContent;
  const keyed = (kind) => all(`[data-key^="${kind}"]`, (node) => node)
    .filter((node) => new RegExp(`^${kind}[0-9.]+$`).test(node.dataset.key))
    .map((node) => [node.dataset.key.slice(kind.length), node]);
  const number = (node, name) => parseFloat(node.style[name]);
  const middle = (node) => node.getBoundingClientRect().left + node.getBoundingClientRect().width / 2;
  const height = (node) => node.getBoundingClientRect().top + node.getBoundingClientRect().height / 2;
  const has = (node, ...names) => names.find((name) => node.classList.contains(name)) ?? '';
  const pressed = (label) => root.querySelector(`[aria-label="${label}"] [aria-pressed="true"]`)?.textContent
    ?? root.querySelector(`select[aria-label="${label}"]`)?.selectedOptions[0].textContent ?? null;
  const row = (kind) => keyed(kind).map(([, node]) => [
    has(node, 'written', 'read', 'made', 'empty'), text(node).replaceAll('\\n', ' · ')]);
  const states = ['present', 'emitted', 'absent'], origins = ['prompt', 'generated'];
  return {
    at: ['event', 'cache', 'layer', 'head'].map((name) => root.dataset[name]),
    pressed: ['KV cache', 'Layer', 'Head'].map(pressed),
    rail: all('.wid-rail [aria-current]', (node) => node.getAttribute('aria-label')),
    slider: root.querySelector('[aria-label="Pass"]').getAttribute('aria-valuetext'),
    heads: keyed('h').map(([, n]) => [text(n.firstChild), text(n.lastChild), has(n, ...states),
      has(n, ...origins), n.classList.contains('live')]),
    ribbon: all('.wid-said', (n) => [text(n), has(n, ...origins), has(n, ...states),
      n.classList.contains('chosen'), n.style.getPropertyValue('--shade'), n.disabled]),
    cells: Object.fromEntries(keyed('c').map(([key, n]) => [key, [
      has(n, 'now', 'again', 'masked', 'earlier', 'coming'), n.textContent, has(n, 'nil'),
      n.style.getPropertyValue('--side'), Math.min(n.offsetWidth, n.offsetHeight) - 4]])),
    k: row('k'), v: row('v'),
    drawer: all('[data-key=drawer], [data-key=drawername]', (n) => n.textContent || has(n, 'keeps', 'drops')),
    labels: all('.wid-rowname', (n) => [text(n.firstChild), n.classList.contains('live'),
      n.classList.contains('chosen'), n.getAttribute('aria-pressed')]),
    caption: all('.wid-caption', text)[0] ?? null,
    names: keyed('w').filter(([key]) => !key.includes('.')).map(([, n]) => n.textContent),
    none: all('[data-key$=none]', text),
    dots: keyed('w').filter(([key]) => key.includes('.')).map(([key]) => key),
    squares: Object.fromEntries(all('.wid-weight', (n) => [n.dataset.key.slice(1, -1), [number(n, 'width'),
      middle(n), height(n) - height(root.querySelector(`[data-key=w${n.dataset.key[1]}]`))]])),
    digits: Object.fromEntries(
      all('[data-key^=w][data-key$=d]', (n) => [n.dataset.key.slice(1, -1), text(n)])),
    centres: Object.fromEntries(
      keyed('h').map(([key, n]) => [key, middle(n)])),
    sums: [...keyed('sum').map(([, n]) => n.textContent), ...all('.wid-sums li', (n) => n.textContent)],
    contexts: Object.fromEntries(keyed('ctx').filter(([key]) => key.includes('.'))
      .map(([key, n]) => [key, n.textContent])),
    table: all('.wid-contexts tr', (n) => [...n.children].map(text)),
    old: Object.fromEntries(keyed('old').map(([key, n]) => [key, n.textContent])),
    note: all('[data-key=noteK]', text)[0], ledger: all('.ledger', text)[0],
    work: all('[data-work]', text), foot: all('.wid-foot', text)[0],
    hatched: all('.wid-work', (bar) => [...bar.children].map((part) => parseFloat(part.style.width))),
    candidates: all('.wid-candidate', (n) => [text(n.children[0]), text(n.children[2]),
      n.classList.contains('chosen'), n.querySelector('i').style.width]),
    arrow: all('[data-key=arrow]', (n) => keyed('c').filter(([, c]) => Math.abs(height(c) - height(n)) < 2)
      .map(([key]) => parseInt(key))),
    how: all('[data-key^=how]', text).join('; '),
    targets: [...all('[data-key^=tgt].target', text), ...all('.wid-targets', text)],
    sentence: all('.wid-recorded .wid-sentence', text)[0], words: all('.wid-unseen p', text),
  };
}"""

# Goes to a state by the controls that a reader has, and reads what stands there.
WALK = f"""(steps) => {{
  const read = {READ};
  const root = document.querySelector('.wid-stepper');
  const pick = (label, text) => {{
    const list = root.querySelector(`select[aria-label="${{label}}"]`);
    const options = list ? [...list.options] : [...root.querySelectorAll(`[aria-label="${{label}}"] button`)];
    const option = options.find((one) => one.textContent === text);
    if (!list) return option?.click();
    list.selectedIndex = options.indexOf(option);
    list.dispatchEvent(new Event('change'));
  }};
  return steps.map(({{ cache, event, layer, head, row }}) => {{
    pick('KV cache', cache);
    pick('Layer', String(layer + 1));
    const slider = root.querySelector('[aria-label="Pass"]');
    slider.value = event;
    slider.dispatchEvent(new Event('input'));
    pick('Head', head);
    if (row !== null) root.querySelector(`[data-token="${{row}}"]`).click();
    return read();
  }});
}}"""


def read(page: Page) -> dict[str, Any]:
    """Return what the page shows now; see READ."""
    return page.evaluate(READ)


def grid(shown: dict[str, Any], size: int) -> list[list[str]]:
    """Return the marks of the page's grid, as in `expected_marks`."""
    marks = {key: text or SIGNS[kind] for key, (kind, text, *_) in shown["cells"].items() if kind != "coming"}
    return [[marks.get(f"{i}.{j}", "") for j in range(size)] for i in range(size)]


def worked_out(trace: Trace, looks: list[Look]) -> list[dict[str, Any]]:
    """Run the front end's modules in Node.js, without a page, and return what they compute for each look.

    The result includes all selectable heads and rows; see tests/js/shown.mjs.
    """
    node = find_node() or lacking("no node here: playwright's wheel has one")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(trace.to_json(), encoding="utf-8")
        command = [node, "--no-warnings", str(ROOT / "tests/js/shown.mjs"), str(path)]
        done = subprocess.run(command, input=json.dumps(looks), capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def walk(page: Page, trace: Trace, looks: list[Look], theme: str, lab: bool) -> None:
    """Set the page to each look, with each head and each row, and check what it shows.

    Args:
        page: the page with the stepper.
        trace: the trace that it shows.
        looks: the runs, passes and layers to select.
        theme: "light", or another theme, in which only every third combination is checked.
        lab: whether the page shows the lab.
    """
    for look, want in zip(looks, worked_out(trace, looks), strict=True):
        name, index, layer = look
        names = dict(zip(want["heads"], want["names"], strict=True))
        if not trace.model.head_names:
            names = {head: str(head + 1) for head in names}
        views = want["views"] if theme == "light" else want["views"][::3]
        steps = [
            {
                "cache": "off" if trace.run(name).cache == "none" else "on",
                "event": index,
                "layer": layer,
                "head": names.get(view["head"], "mean"),
                "row": view["row"],
            }
            for view in views
        ]
        for step, shown, view in zip(steps, page.evaluate(WALK, steps), views, strict=True):
            check(shown, trace, look, want, view | {"lab": lab}, step)


def check(
    shown: dict[str, Any],
    trace: Trace,
    look: Look,
    want: dict[str, Any],
    seen: dict[str, Any],
    step: dict[str, Any],
) -> None:
    """Assert that the page shows what it must show in one state.

    Args:
        shown: what the page shows.
        trace: the trace.
        look: the selected run, pass and layer.
        want: what the front end's modules compute for this look.
        seen: what they compute for the selected head and row.
        step: the settings of the page's controls.
    """
    name, index, layer = look
    run, columns = trace.run(name), want["columns"]
    recorded = trace.recorded
    has = [
        len(trace.runs) > 1,
        *(len({pair[k] for pair in recorded}) > 1 for k in (0, 1)),
    ]
    pressed = [step["cache"], str(layer + 1), step["head"]]
    where = (look, seen["head"], seen["row"])
    head = "mean" if seen["head"] is None else str(seen["head"])
    assert shown["at"] == [str(index), step["cache"], str(layer), head], where
    assert shown["pressed"] == [
        sentence if there else None for sentence, there in zip(pressed, has, strict=True)
    ]
    assert shown["rail"] == [want["pass"]]
    assert shown["slider"] == f"{want['pass']}, {index + 1} of {len(run.passes)}"
    assert shown["sentence"] == want["sentence"], where
    assert shown["words"] == seen["words"][: None if seen["lab"] else -1], where
    check_ribbon(shown, want, seen)
    keeps, training = run.cache != "none", want["pass"] == "Training"
    name = "training keeps no cache" if training else "KV cache"
    edge = "keeps" if keeps and not training else "drops"
    assert shown["drawer"] == [edge, name if keeps else "no cache: made, used, dropped"]
    if columns < DENSE:
        check_grid(shown, want, seen, columns)
        check_rows(shown, trace, want, layer, seen["lab"])
    check_lines(shown, want, seen, columns)
    check_beside(shown, trace, want, seen)


def check_ribbon(shown: dict[str, Any], want: dict[str, Any], seen: dict[str, Any]) -> None:
    ran = {*want["live"], *map(int, want["untouched"])}  # only these have a line to choose
    for i, (sentence, (text, _, origin, state, _)) in enumerate(
        zip(shown["ribbon"], want["tokens"], strict=True)
    ):
        dark = f"{seen['shades'].get(str(i), 0)}%"
        off = i not in ran
        assert sentence == [text.strip(), origin, state, i == seen["row"], dark, off], i


def check_grid(shown: dict[str, Any], want: dict[str, Any], seen: dict[str, Any], columns: int) -> None:
    """Check the grid's marks, and its squares, whose area is the attention weight's share of the cell."""
    marks = {f"{i}.{j}": mark for i, row in enumerate(want["marks"]) for j, mark in enumerate(row) if mark}
    if columns > DIGITS:
        marks = {key: mark for key, mark in marks.items() if mark != "×"}
    assert {
        key: text or SIGNS[kind] if kind != "masked" else "×"
        for key, (kind, text, *_) in shown["cells"].items()
    } == marks
    for key, (kind, _, nil, side, cell) in shown["cells"].items():
        if int(key.split(".")[0]) not in want["lookedInto"]:
            continue  # of a long text only some lines are looked into
        share = seen["shares"].get(key) if kind in ("now", "again", "earlier") else None
        assert (nil == "nil") == (share == 0), key
        assert side == ("" if share is None else f"{max(3, math.sqrt(share) * cell) + 1e-9:.1f}px"), key
    assert shown["heads"] == [
        [
            "\u00a0" if state == "absent" else text,
            str(place),
            state,
            origin if state == "present" else "",
            *rest,
        ]
        for text, place, origin, state, *rest in want["tokens"][:columns]
    ]


def check_rows(shown: dict[str, Any], trace: Trace, want: dict[str, Any], layer: int, lab: bool) -> None:
    """Check the state and the values of each token's K and V, and the labels of the rows."""
    kept = next((v for v in trace.values or [] if v.layer == layer), None)
    for kind in "kv":
        for j, (state, text) in enumerate(shown[kind]):
            assert state == want["entries"][j], (kind, j)
            numbers = getattr(kept, kind, None)
            if numbers and state != "empty" and (lab or kind == "v"):
                assert text == " · ".join(map(number, numbers[j])), (kind, j)
    live = [(i, token) for i, token in enumerate(want["tokens"][: want["columns"]]) if token[3] == "present"]
    training = want["pass"].startswith("Training")
    assert [label[:2] for label in shown["labels"]] == [
        [token[0], token[4]] for i, token in live if token[4] or str(i) in want["untouched"] or not training
    ]


def check_lines(shown: dict[str, Any], want: dict[str, Any], seen: dict[str, Any], columns: int) -> None:
    """Check the attention weights of the selected row, for each head and column, and the sums per head."""
    row, lines = seen["row"], seen["lines"]
    assert shown["caption"].startswith(f"attention weights of {want['tokens'][row][0]}")
    assert ("thrown away" in shown["caption"]) == (row not in want["live"])
    assert shown["names"] == [line["name"] for line in lines]
    assert shown["none"] == ["not recorded" for line in lines if line["weights"] is None]
    sums = [line["sum"] for line in lines]
    assert [
        total.removeprefix(line["name"])
        for total, line in zip(shown["sums"], [one for one in lines if one["sum"]], strict=True)
    ] == [total for total in sums if total]
    if columns >= DENSE:
        return
    weights = {f"{h}.{j}": w for h, line in enumerate(lines) for j, w in line["weights"] or []}
    seen_by = [len(line["weights"] or []) for line in lines]
    picked = {key: w for key, w in weights.items() if w * seen_by[int(key.split(".")[0])] >= 0.05}
    assert sorted(shown["dots"]) == sorted(weights.keys() - picked.keys())
    assert shown["squares"].keys() == picked.keys()
    most = max(min(15, 17), 1)
    for key, (side, centre, off) in shown["squares"].items():
        assert abs(off) < 12, f"{key} stands on the line of its own head"
        assert abs(side - max(2, math.sqrt(picked[key]) * most)) < 0.01, key
        assert abs(centre - shown["centres"][key.split(".")[1]]) <= 13, "under its column"
    assert shown["digits"] == ({key: number(w) for key, w in picked.items()} if columns <= DIGITS else {})


def check_beside(shown: dict[str, Any], trace: Trace, want: dict[str, Any], seen: dict[str, Any]) -> None:
    """Check what the page shows next to the grid and below it.

    These are the contexts, targets, candidates, the note on KV entries, and the work of the pass.
    """
    if shown["contexts"]:
        found = {f"{q}.{h}": text for q, all_ in seen["contexts"].items() for h, text in enumerate(all_)}
        assert shown["contexts"] == found
    for query, numbers in list(seen["contexts"].items()) if shown["table"] else []:
        at = want["live"].index(int(query))
        assert shown["table"][1 + at][1 : 1 + len(numbers)] == numbers
    assert all(text == f"{want['untouched'][i]}'s, untouched" for i, text in shown["old"].items())
    if shown["heads"] and not shown["table"]:
        assert len(shown["old"]) in (0, len(want["untouched"]))
    assert shown["note"] == want["note"]
    assert shown["ledger"] == (want["ledger"] if seen["lab"] else None)
    if want["targets"]:
        pairs = [
            f"{want['tokens'][q][0]} → {word}" for q, word in zip(want["live"], want["targets"], strict=True)
        ]
        beside = [f"→ {word}" for word in want["targets"]]
        rest = f", … ({len(pairs)} in all)" if len(pairs) > 24 else ""
        in_table = [row[-1] for row in shown["table"][1:]] == want["targets"]
        assert in_table or shown["targets"] in (beside, ["targets " + ", ".join(pairs[:24]) + rest])
    if not seen["lab"]:
        check_work(shown, trace, want)
    check_next(shown, want, seen)


def check_work(shown: dict[str, Any], trace: Trace, want: dict[str, Any]) -> None:
    work = want["work"]
    for sentence, widths, bar in zip(shown["work"], shown["hatched"], work["bars"], strict=True):
        done, total, avoided = bar["done"], bar["total"], bar["avoided"]
        of = f" of {total:,}" if total is not None else ""
        assert sentence == f"{done:,}{of}" + (f", {avoided:,} avoided" if avoided > 0 else "")
        lengths = [done, avoided] if avoided > 0 else [done]
        assert widths == pytest.approx([100 * n / bar["scale"] for n in lengths], abs=0.01)
    so_far, without = work["soFar"], work["soFarWithout"]
    more = f" with the cache, {without:,} without" if without and without > so_far else ""
    assert shown["foot"].endswith(f"tokens processed so far: {so_far:,}{more}")
    assert "one head and layer; outlined" in shown["foot"]
    where = " in (each|this) layer" * (trace.model.n_layers > 1)
    assert re.search(f"KV entries stored{where} {work['stored']:,}", shown["foot"])


def check_next(shown: dict[str, Any], want: dict[str, Any], seen: dict[str, Any]) -> None:
    """Check the candidates for the next token, with their probabilities and the chosen one."""
    out = seen["out"]
    if out is None:
        assert shown["candidates"] == []
        return
    assert [found[:3] for found in shown["candidates"]] == [
        [one["word"], percent(one["p"]), one["chosen"]] for one in out["top"]
    ]
    for (*_, width), one in zip(shown["candidates"], out["top"], strict=True):
        assert abs(float(width.rstrip("%")) - max(1, 100 * one["p"])) < 0.01
    for level in shown["arrow"] if shown["cells"] else []:
        assert {*level} == {out["query"]}, "the arrow begins at the row that the word comes from"
    assert ("percentages before these settings" in shown["how"]) == (out["how"] != "greedy")
    assert out["how"] == "greedy" or out["how"] in shown["how"]
