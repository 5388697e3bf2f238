"""Reads a stepper's page back, state by state, and says what it should show; see tests/expected.py."""

from __future__ import annotations

import math
from typing import Any

from playwright.sync_api import Page

from helpers.stepper.format import number, percent
from helpers.trace import Trace
from tests.expected import expected, view, views
from tests.made_traces import Look

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
  const has = (node, ...names) => names.find((name) => node.classList.contains(name)) ?? '';
  const pressed = (label) => root.querySelector(`[aria-label="${label}"] [aria-pressed="true"]`)?.textContent
    ?? root.querySelector(`select[aria-label="${label}"]`)?.selectedOptions[0].textContent ?? null;
  const row = (kind) => keyed(kind).map(([, node]) => [
    has(node, 'written', 'read', 'rest', 'made', 'dropped', 'empty'), text(node).replaceAll('\\n', ' · ')]);
  const states = ['present', 'emitted', 'absent'], origins = ['prompt', 'generated', 'draft'];
  const fates = ['accepted', 'rejected'];
  return {
    at: ['event', 'cache', 'layer', 'head', 'sequence'].map((name) => root.dataset[name]),
    pressed: ['KV cache', 'Layer', 'Head', 'Sequence'].map(pressed),
    rail: all('.wid-rail [aria-current]', (node) => node.getAttribute('aria-label')),
    slider: root.querySelector('[aria-label="Pass"]').getAttribute('aria-valuetext'),
    heads: keyed('h').map(([, n]) => [text(n.firstChild), text(n.lastChild), has(n, ...states),
      has(n, ...origins), n.classList.contains('live'), has(n, ...fates)]),
    ribbon: all('.wid-said', (n) => [text(n), has(n, ...origins), has(n, ...states), has(n, ...fates),
      n.classList.contains('chosen'), n.style.getPropertyValue('--shade'), n.disabled]),
    cells: Object.fromEntries(keyed('c').map(([key, n]) => [key, [
      has(n, 'now', 'again', 'masked', 'earlier', 'coming'), n.textContent, has(n, 'nil'),
      n.style.getPropertyValue('--side'), Math.min(number(n, 'width'), number(n, 'height')) - 4]])),
    k: row('k'), v: row('v'),
    drawer: all('[data-key=drawer], [data-key=drawername]', (n) => n.textContent || has(n, 'keeps', 'drops')),
    labels: all('.wid-rowname', (n) => [text(n.firstChild), n.classList.contains('live'),
      n.classList.contains('chosen'), has(n, ...fates), n.getAttribute('aria-pressed')]),
    caption: all('.wid-caption', text)[0] ?? null,
    names: keyed('w').filter(([key]) => !key.includes('.')).map(([, n]) => n.textContent),
    none: all('[data-key$=none]', text),
    dots: keyed('w').filter(([key]) => key.includes('.')).map(([key]) => key),
    squares: Object.fromEntries(all('.wid-weight', (n) => [n.dataset.key.slice(1, -1),
      [number(n, 'width'), number(n, 'left') + number(n, 'width') / 2]])),
    digits: Object.fromEntries(
      all('[data-key^=w][data-key$=d]', (n) => [n.dataset.key.slice(1, -1), text(n)])),
    centres: Object.fromEntries(
      keyed('h').map(([key, n]) => [key, number(n, 'left') + number(n, 'width') / 2])),
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
    how: [...all('[data-key^=how]', text), ...all('.wid-next p span', text)].join('; '),
    targets: [...all('[data-key^=tgt].target', text), ...all('.wid-targets', text)],
    sentence: all('.wid-sentence', text)[0], words: all('.wid-unseen p', text),
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
  return steps.map(({{ cache, event, layer, sequence, head, row }}) => {{
    pick('Sequence', String(sequence + 1));
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
    """What the page shows now."""
    return page.evaluate(READ)


def grid(shown: dict[str, Any], size: int) -> list[list[str]]:
    """The grid on the page in the static form's symbols."""
    marks = {key: text or SIGNS[kind] for key, (kind, text, *_) in shown["cells"].items() if kind != "coming"}
    return [[marks.get(f"{i}.{j}", "") for j in range(size)] for i in range(size)]


def walk(page: Page, trace: Trace, looks: list[Look], many: int = 1) -> None:
    """Turn the page to each look, with every head and every line, and hold it against the trace."""
    for look in looks:
        name, index, layer, sequence = look
        want = expected(trace, *look)
        pairs = views(want)
        names = dict(zip(want["heads"], want["names"], strict=True))
        if not trace.model.head_names:
            names = {head: str(head + 1) for head in names}
        steps = [
            {
                "cache": "off" if trace.run(name).cache == "none" else "on",
                "event": index,
                "layer": layer,
                "sequence": sequence,
                "head": names.get(head, "mean"),
                "row": row,
            }
            for head, row in pairs[::many]
        ]
        for step, shown, (head, row) in zip(steps, page.evaluate(WALK, steps), pairs[::many], strict=True):
            check(shown, trace, look, want, view(want, head, row), step)


def check(
    shown: dict[str, Any],
    trace: Trace,
    look: Look,
    want: dict[str, Any],
    seen: dict[str, Any],
    step: dict[str, Any],
) -> None:
    """What the page shows at a state is what the trace holds."""
    name, index, layer, sequence = look
    run, columns = trace.run(name), want["columns"]
    has = {
        label: len(many) > 1
        for label, many in (
            ("Layer", {n for n, _ in trace.recorded}),
            ("Head", {n for _, n in trace.recorded}),
            ("Sequence", trace.sequences),
        )
    }
    wanted = {"Layer": str(layer + 1), "Head": step["head"], "Sequence": str(sequence + 1)}
    where = (look, seen["head"], seen["row"])
    head = "mean" if seen["head"] is None else str(seen["head"])
    assert shown["at"] == [str(index), step["cache"], str(layer), head, str(sequence)], where
    assert shown["pressed"] == [
        step["cache"] if len(trace.runs) > 1 else None,
        *(wanted[k] if has[k] else None for k in wanted),
    ]
    title = want["pass"].split(",")[0].rstrip(".")
    assert shown["rail"] == [title]
    assert shown["slider"] == f"{title}, {index + 1} of {len(run.events)}"
    for fact in want["sentence"]:
        assert fact in shown["sentence"], where
    check_ribbon(shown, want, seen)
    keeps = run.cache != "none"
    training = title == "Training"
    name = (
        "no cache: made, used, dropped" if not keeps else "training keeps nothing" if training else "KV cache"
    )
    assert shown["drawer"] == ["keeps" if keeps and not training else "drops", name]
    if columns < DENSE:
        check_grid(shown, want, seen, columns)
        check_rows(shown, trace, want, layer, sequence)
    check_lines(shown, want, seen, columns)
    check_beside(shown, trace, want, seen)
    assert shown["words"][: len(want["words"])] == want["words"], where
    assert shown["words"][len(want["words"]) :][: len(seen["said"])] == seen["said"], where
    assert shown["words"][-1] == f"Ledger: {want['ledger']}."


def check_ribbon(shown: dict[str, Any], want: dict[str, Any], seen: dict[str, Any]) -> None:
    ran = {*want["live"], *map(int, want["untouched"])}  # only these have a line to choose
    for i, (said, (text, _, origin, state, _, fate)) in enumerate(
        zip(shown["ribbon"], want["tokens"], strict=True)
    ):
        dark = f"{seen['shades'].get(str(i), 0)}%"
        off = i not in ran
        assert said == [text.strip(), origin, state, fate, i == seen["row"], dark, off], i


def check_grid(shown: dict[str, Any], want: dict[str, Any], seen: dict[str, Any], columns: int) -> None:
    """Marks, and squares whose area is the weight's share of the cell."""
    marks = {f"{i}.{j}": mark for i, row in enumerate(want["marks"]) for j, mark in enumerate(row) if mark}
    marks |= {f"{i}.{j}": "-" for i, keys in want["coming"].items() for j in keys}
    if columns > DIGITS:
        marks = {key: mark for key, mark in marks.items() if mark != "×"}
    assert {
        key: text or SIGNS[kind] if kind != "masked" else "×"
        for key, (kind, text, *_) in shown["cells"].items()
    } == marks
    for key, (kind, _, nil, side, cell) in shown["cells"].items():
        if key.split(".")[0] not in want["weights"]:
            continue  # of a long text only some lines are looked into
        share = seen["shares"].get(key) if kind in ("now", "again", "earlier") else None
        assert (nil == "nil") == (share == 0), key
        assert side == ("" if share is None else f"{max(3, math.sqrt(share) * cell) + 1e-9:.1f}px"), key
    expected_heads = [
        [
            "\u00a0" if state == "absent" else text,
            str(position),
            state,
            origin if state == "present" else "",
            live,
            fate,
        ]
        for text, position, origin, state, live, fate in want["tokens"][:columns]
    ]
    assert [
        [text.replace(" ", "\u00a0") if text == " " else text, *rest] for text, *rest in shown["heads"]
    ] == expected_heads


def check_rows(shown: dict[str, Any], trace: Trace, want: dict[str, Any], layer: int, sequence: int) -> None:
    """K and V: what happens to each row, and what stands in it."""
    kept = next((v for v in trace.values or [] if (v.layer, v.sequence) == (layer, sequence)), None)
    for kind in "kv":
        for j, (state, text) in enumerate(shown[kind]):
            assert state == want["rows"][j], (kind, j)
            numbers = getattr(kept, kind, None)
            if numbers and state not in ("empty", "dropped") and trace.model.name != "toy":
                assert text == " · ".join(map(number, numbers[j])), (kind, j)
    live = [(i, token) for i, token in enumerate(want["tokens"][: want["columns"]]) if token[3] == "present"]
    training = want["pass"].startswith("Training")
    assert [[*label[:2], label[3]] for label in shown["labels"]] == [
        [token[0], token[4], token[5]]
        for i, token in live
        if token[4] or str(i) in want["untouched"] or (not training and want["work"]["counts"])
    ]


def check_lines(shown: dict[str, Any], want: dict[str, Any], seen: dict[str, Any], columns: int) -> None:
    """The weights of the chosen row, by head and column, and what they sum up to."""
    row, lines = seen["row"], seen["lines"]
    text = want["tokens"][row][0] if row is not None else None
    said = "attention weights · no token runs" if row is None else f"attention weights of {text}"
    assert shown["caption"].startswith(said)
    assert ("thrown away" in shown["caption"]) == (row is not None and row not in want["live"])
    assert shown["names"] == [line["name"] for line in lines]
    assert shown["none"] == [
        "" if row is None else "not recorded" for line in lines if line["weights"] is None
    ]
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
    for key, (side, centre) in shown["squares"].items():
        assert abs(side - max(2, math.sqrt(picked[key]) * most)) < 0.01, key
        assert abs(centre - shown["centres"][key.split(".")[1]]) <= 13, "under its column"
    assert shown["digits"] == ({key: number(w) for key, w in picked.items()} if columns <= DIGITS else {})


def check_beside(shown: dict[str, Any], trace: Trace, want: dict[str, Any], seen: dict[str, Any]) -> None:
    """Contexts, targets, candidates, notes, work: what stands beside the board or under it."""
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
    assert shown["ledger"] == want["ledger"]
    if want["targets"]:
        pairs = [
            f"{want['tokens'][q][0]} → {word}" for q, word in zip(want["live"], want["targets"], strict=True)
        ]
        beside = [f"→ {word}" for word in want["targets"]]
        rest = f", … ({len(pairs)} in all)" if len(pairs) > 24 else ""
        in_table = [row[-1] for row in shown["table"][1:]] == want["targets"]
        assert in_table or shown["targets"] in (beside, ["targets " + ", ".join(pairs[:24]) + rest])
    check_work(shown, trace, want)
    check_next(shown, want, seen)


def check_work(shown: dict[str, Any], trace: Trace, want: dict[str, Any]) -> None:
    work, counts, plain = want["work"], want["work"]["counts"], want["work"]["plain"]
    for said, bars, name in zip(shown["work"], shown["hatched"], ("positions", "pairs"), strict=True):
        done, total = counts[name] if counts else 0, plain[name] if plain else None
        avoided = total - done if total else 0
        of = f" of {total:,}" if total is not None else ""
        assert said == f"{done:,}{of}" + (f", {avoided:,} avoided" if avoided > 0 else "")
        assert len(bars) == 1 + (avoided > 0)
        assert len(bars) == 1 or abs(bars[1] / bars[0] - avoided / done) < 0.01 * avoided / done
    many = len(trace.sequences)
    over = f" over all {many} sequences" if many > 1 else ""
    so_far, without = work["so far"], work["without"]
    more = f" with the cache, {without:,} without" if without and without > so_far else ""
    assert shown["foot"].endswith(f"tokens run so far{over}: {so_far:,}{more}")
    assert f"one head and layer{over}; outlined" in shown["foot"]
    assert f"rows stored {work['kept']:,} · rows read in this pass {work['read']:,}" in shown["foot"]


def check_next(shown: dict[str, Any], want: dict[str, Any], seen: dict[str, Any]) -> None:
    """The candidates, at most eight, the chosen one among them."""
    out = seen["out"]
    if out is None:
        assert shown["candidates"] == []
        return
    top = out["top"][:8]
    if out["chosen"] not in [word for word, _, _ in top]:
        top = [*top[:7], *(entry for entry in out["top"] if entry[0] == out["chosen"])]
    assert [found[:3] for found in shown["candidates"]] == [
        [w, percent(p), w == out["chosen"]] for w, _, p in top
    ]
    for (*_, width), (*_, p) in zip(shown["candidates"], top, strict=True):
        assert abs(float(width.rstrip("%")) - max(1, 100 * p)) < 0.01
    assert ("percentages before these settings" in shown["how"]) == (out["how"] != "greedy")
    assert out["how"] == "greedy" or out["how"] in shown["how"]
