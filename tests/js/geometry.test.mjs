import assert from "node:assert/strict";
import { test } from "node:test";
import {
  columnAt,
  columnWidths,
  fittingRail,
  layoutOf,
  nextTop,
  railItems,
  railLabel,
  rowAt,
  scrollFor,
  WINDOW,
  windowOf,
} from "../../helpers/stepper/js/geometry.ts";

const lay = (width, columns, lab = true, contexts = true) =>
  layoutOf({ width, columns, heads: 4, contexts, lab, wants: Array(columns).fill(45), label: 52, key: 46 });

test("columns stand side by side, in one piece, and never on top of the notes", () => {
  for (const lab of [true, false])
    for (const width of [240, 262, 362, 540, 700, 862, 1162])
      for (const columns of [1, 2, 5, 8, 11, 16, 24, 25, 32, 64, 128]) {
        const layout = lay(width, columns, lab, lab);
        assert.equal(layout.xs.length, columns);
        layout.xs.forEach((x, k) => {
          if (k) assert.ok(Math.abs(x - (layout.xs[k - 1] + layout.widths[k - 1])) < 1e-6);
        });
        if (layout.notes) assert.ok(layout.notes.x >= layout.xEnd);
        if (layout.notes) assert.ok(layout.notes.x + layout.notes.width <= width, "none is cut off");
        if (layout.notes) assert.ok(layout.notes.width >= (layout.dense ? 240 : 204), "they have their room");
        if (layout.next && !layout.dense)
          assert.ok(layout.next.x >= layout.notes.x + layout.notes.width - 1e-6);
        if (layout.next)
          assert.ok(layout.next.x + layout.next.width <= layout.width + 1, `${width} ${columns}`);
        if (layout.dense) assert.ok(layout.rowH <= Math.ceil(2 * layout.widths[0]), "cells are no towers");
        const bands = [layout.y.heads, layout.y.cell, layout.y.k, layout.y.v, layout.height];
        assert.deepEqual(
          bands,
          [...bands].sort((a, b) => a - b),
        );
      }
});

test("five tokens stand with contexts and next word beside them at 900 px, under them at 284", () => {
  assert.equal(lay(862, 5).mode, "wide");
  assert.equal(lay(1162, 11).mode, "medium");
  assert.equal(lay(862, 11).mode, "narrow", "beside eleven such columns there is no room");
  assert.equal(lay(266, 5).mode, "narrow");
  assert.ok(lay(862, 5).height < 460);
  assert.ok(lay(862, 8).height < 560);
  assert.deepEqual(
    [true, false].map((lab) => lay(862, 5, lab).size.k),
    [36, 26],
    "K is higher where its contents are shown",
  );
});

test("a board turns into another at the very pixel from which its parts fit", () => {
  const modes = [630, 631, 830, 831].map((width) => lay(width, 5).mode);
  assert.deepEqual(modes, ["narrow", "medium", "medium", "wide"]);
  const rowH = (width) => [5, 6, 8, 9, 12, 13, 16, 17].map((columns) => lay(width, columns).rowH);
  assert.deepEqual(rowH(2400), [34, 30, 30, 24, 24, 22, 22, 20]);
  assert.deepEqual(rowH(362), [34, 30, 30, 30, 30, 22, 22, 20], "higher where it is narrow, up to a dozen");
  const said = [479, 480].map((width) => lay(width, 3).size.said);
  assert.deepEqual(said, [52, 36], "a line more of the lab's notes");
  const tight = (key) =>
    layoutOf({ width: 862, columns: 5, heads: 4, wants: Array(5).fill(45), label: 52, key });
  assert.equal(tight(55).widths[0], 65);
  assert.deepEqual([tight(55).tight, tight(56).tight], [false, true], "K fits in one line");
});

test("columns are equal where the words fit, and only long words get more where they do not", () => {
  assert.deepEqual(columnWidths(330, [40, 50, 20, 20, 30]), [66, 66, 66, 66, 66]);
  const mixed = columnWidths(210, [40, 60, 20, 20, 30]);
  assert.ok(mixed[1] >= 60 && mixed[2] === mixed[3]);
  assert.ok(mixed.reduce((a, b) => a + b) <= 210);
  const least = [12, 13].map((columns) => columnWidths(0, Array(columns).fill(60))[0]);
  assert.deepEqual(least, [60, 46], "more than a dozen are crowded");
});

test("a narrow board scrolls to its end with a whole column at its left edge", () => {
  const layout = lay(362, 11);
  assert.ok(layout.narrow && layout.xEnd > 362);
  const scrolled = layout.width - 362;
  assert.ok(layout.xs.some((x) => Math.abs(x - layout.x0 - scrolled) < 1e-6));
  assert.ok(layout.width >= layout.xEnd);
  assert.equal(lay(362, 3).width, 362);
  for (let k = 0; k < 11; k++) {
    const at = scrollFor(layout, k, 362);
    assert.ok(
      layout.xs.some((x) => Math.abs(x - layout.x0 - at) < 1e-6),
      "a whole column at the left edge",
    );
    assert.ok(
      layout.xs[k] + layout.widths[k] - at <= 362 && layout.xs[k] - at >= layout.x0,
      "column k is seen",
    );
  }
  assert.equal(scrollFor(layout, 0, 362), 0);
  const three = { xs: [100, 140, 180], x0: 100, widths: [40, 40, 40] };
  assert.deepEqual(
    [220, 219].map((width) => scrollFor(three, 2, width)),
    [0, 40],
    "it just fits",
  );
});

test("the canvas begins past two dozen tokens", () => {
  assert.equal(lay(862, 24).dense, false);
  assert.equal(lay(862, 25).dense, true);
});

test("the next words keep above the cache, and on a dense board above the sums, which share their column", () => {
  for (const [columns, below] of [
    [5, "k"],
    [25, "caption"],
    [128, "caption"],
  ]) {
    const layout = lay(1162, columns);
    const [lines, height] = [9, 24];
    const top = nextTop(layout, layout.y[below] - 4, lines, height);
    assert.ok(top + 22 + lines * height + 6 <= layout.y[below], `${columns} tokens`);
    assert.equal(nextTop(layout, 0, 2, height), below === "k" ? 0 : layout.y.cell, "not over the top");
  }
});

test("points and cells", () => {
  const layout = lay(862, 5);
  for (const by of [0, 5]) layout.xs.forEach((x, k) => assert.equal(columnAt(layout, x + by), k));
  for (const x of [layout.x0 - 1, layout.xEnd]) assert.equal(columnAt(layout, x), null);
  assert.equal(rowAt(layout, layout.y.cell + 3.5 * layout.rowH, 5), 3);
  const edges = [-1, 0, 5 * layout.rowH - 1, 5 * layout.rowH];
  assert.deepEqual(
    edges.map((y) => rowAt(layout, layout.y.cell + y, 5)),
    [null, 0, 4, null],
  );
});

test("the window ends just after the pass, or starts where the reader put it", () => {
  assert.deepEqual(windowOf(64, 63), [0, 64]);
  assert.deepEqual(windowOf(512, 300), [173, 301]);
  assert.deepEqual(windowOf(512, 300, 0), [0, WINDOW]);
  assert.deepEqual(windowOf(512, 511, 500), [384, 512]);
});

test("the rail names first, current and last, and marks the gaps", () => {
  assert.deepEqual(railItems(3, 1, 8), [0, 1, 2]);
  assert.deepEqual(railItems(6, 0, 5), [0, 1, 2, 3, 4, 5], "a gap of one is filled");
  const items = railItems(62, 30, 7);
  for (const i of [0, 1, 29, 30, 31, 61]) assert.ok(items.includes(i));
  assert.equal(items.filter((i) => i === null).length, 2);
  const events = Array.from({ length: 62 }, (_, i) => ({ name: `Decode ${i}`, short: String(i) }));
  assert.equal(railLabel(events, [0, null, 30], 2, 30), "Decode 30", "by its name after a gap");
  assert.equal(railLabel(events, [0, null, 30, 31], 3, 30), "31");
  assert.equal(railLabel(events, [0, 1], 1, 1), "1");
  for (let current = 0; current < 62; current++)
    assert.ok(fittingRail(events, current, 260).includes(current));
  assert.deepEqual(fittingRail(events, 30, 0), [null, 30, null, 61], "the current one and the last at least");
});
