// Where things stand, in pixels: pure arithmetic on the width, the number of tokens and the panels.
import VIEW from "../view.json" with { type: "json" };

export const DENSE_FROM = 25; // from so many tokens the grid is drawn on a canvas
export const WINDOW = 128; // and never more than so many columns at once

const COLUMN_MAX = 66;
const COLUMN_MAX_WIDE = 84; // on a wide page
const COLUMN_MIN = 32;
const WORDY = 60; // narrower columns do not say in words what happens to a row
const CROWDED = 46; // widest column of more than a dozen
const LABELS = 114;
const BORDERS = 10; // what a column's head needs beside its word,
const BORDERS_NARROW = 6; // and where room is short
export const NARROW_TEXT = 12 / 13; // words are set smaller where room is short
const DRAWER = 7; // between the cache's edge and its rows
const NEXT_MIN = 200;
const NEXT_MAX = 320;

function rowHeight(rows, narrow) {
  if (narrow && rows <= 12) return Math.max(30, rowHeight(rows, false));
  for (const [most, height] of [
    [5, 34],
    [8, 30],
    [12, 24],
    [16, 22],
  ])
    if (rows <= most) return height;
  return 20;
}

/** The width that all columns can have if only those with a longer word are wider; null if none fits. */
function commonWidth(room, needs) {
  const widest = Math.max(...needs);
  for (let common = widest; common >= COLUMN_MIN; common--)
    if (needs.reduce((sum, need) => sum + Math.max(need, common), 0) <= room) return common;
  return null;
}

/** Equal columns where the words fit; else only long words get more; never under COLUMN_MIN. */
export function columnWidths(room, wants, widest = COLUMN_MAX) {
  const most = wants.length > 12 ? CROWDED : widest;
  const equal = Math.floor(Math.min(widest, room / wants.length));
  const needs = wants.map((want) => Math.min(most, Math.max(COLUMN_MIN, Math.ceil(want))));
  if (needs.every((need) => need <= equal)) return wants.map(() => equal);
  const common = commonWidth(room, needs);
  if (common === null) return needs; // the board scrolls
  return needs.map((need) => Math.max(need, common));
}

function rightWidths(panels, heads, dense) {
  const notes = Math.max(dense ? 240 : 204, panels.contexts ? heads * 46 + 12 : 0);
  return { notes, next: panels.prediction ? NEXT_MIN : 0 };
}

function chooseMode(width, columns, dense, right) {
  const room = width - LABELS - 18;
  if (dense) return (room - right.notes) / columns >= 3 && width >= 560 ? "medium" : "narrow";
  if ((room - right.notes - right.next) / columns >= 46) return "wide";
  return (room - right.notes) / columns >= 36 ? "medium" : "narrow";
}

/**
 * The layout of the board.
 * @param width     inner width in pixels
 * @param columns   columns in the window
 * @param heads     lines of attention weights
 * @param panels    {weights, contexts, prediction, keys, values, shapes, ledger}
 * @param wants     widths that the column heads' words need
 * @param label     width that the widest row label needs
 */
export function layoutOf({ width, columns, heads, panels, wants, label }) {
  const dense = columns >= DENSE_FROM;
  const right = rightWidths(panels, heads, dense);
  const mode = chooseMode(width, columns, dense, right);
  const narrow = mode === "narrow";
  const size = narrow ? NARROW_TEXT : 1;
  const gap = narrow ? 1 : 2; // left and right of every cell
  const x0 = narrow ? Math.min(82, Math.max(44, Math.ceil(label * size) + 12)) : LABELS;
  const beside = narrow ? 0 : right.notes + 18 + (mode === "wide" ? right.next : 0);
  const widths = dense
    ? denseWidths(width - x0 - beside, columns, narrow)
    : columnWidths(
        width - x0 - beside,
        wants.map((want) => want * size + 2 * gap + (narrow ? BORDERS_NARROW : BORDERS)),
        width > 1000 ? COLUMN_MAX_WIDE : COLUMN_MAX,
      );
  const xs = [];
  let x = x0;
  for (const w of widths) {
    xs.push(x);
    x += w;
  }
  const layout = {
    mode,
    dense,
    narrow,
    gap,
    x0,
    xs,
    widths,
    xEnd: x,
    rowH: dense
      ? Math.min(denseRow(columns), Math.max(3, Math.ceil(2 * widths[0])))
      : rowHeight(columns, narrow),
  };
  const notesX = x + 18;
  layout.notes = narrow ? null : { x: notesX, width: right.notes };
  layout.next = null;
  if (mode === "wide" && panels.prediction) {
    const nextX = notesX + right.notes;
    layout.next = { x: nextX, width: Math.min(NEXT_MAX, width - nextX) };
  }
  if (dense && !narrow) {
    layout.notes.width = Math.min(NEXT_MAX, width - notesX);
    if (panels.prediction) layout.next = { ...layout.notes };
  }
  layout.width = narrow ? scrolledWidth(layout, width) : width;
  return Object.assign(layout, heights(layout, columns, heads, panels));
}

/** How far a board scrolls to show column k whole, and a whole column at its left edge. */
export function scrollFor({ xs, x0, widths }, k, width) {
  const least = xs[k] + widths[k] - width;
  const first = xs.find((x) => x - x0 >= least) ?? xs[k];
  return first - x0;
}

/** As wide as the columns, or as lets the board scroll to its end in the same way. */
function scrolledWidth(layout, width) {
  return Math.max(layout.xEnd, width + scrollFor(layout, layout.xs.length - 1, width));
}

function denseWidths(room, columns, narrow) {
  const each = Math.max(narrow ? 4 : 3, Math.min(20, Math.floor((10 * room) / columns) / 10));
  return Array(columns).fill(each);
}

function denseRow(rows) {
  return Math.max(3, Math.min(14, Math.floor(4200 / rows) / 10));
}

function heights(layout, rows, heads, panels) {
  const { narrow, dense } = layout;
  const smallest = Math.min(...layout.widths);
  const stacked = !dense && smallest < 50 && rows <= VIEW.digits_up_to;
  const rowOf = (full) => (dense ? 20 : full ? 36 : 26);
  const y = { heads: 0, headsH: dense ? 26 : 38 };
  y.grid = y.heads + y.headsH + (dense ? 6 : 10);
  let at = y.grid + rows * layout.rowH + 14;
  if (panels.weights) {
    y.caption = at;
    y.weights = y.caption + 22;
    y.lineH = stacked ? 34 : dense ? 24 : 21;
    at = y.weights + heads * y.lineH + 14;
  }
  y.drawer = at;
  [y.k, y.kH] = [y.drawer + DRAWER, rowOf(panels.keys)];
  [y.v, y.vH] = [y.k + y.kH + 6, rowOf(panels.values)];
  y.drawerH = y.v + y.vH + DRAWER - y.drawer;
  y.under = y.drawer + y.drawerH + 5; // where it is narrow, what is said of the rows stands under them
  if (narrow)
    at = y.under + 18 + (panels.shapes ? 16 : 0) + (panels.ledger ? (layout.width < 480 ? 34 : 18) : 0);
  else at = y.under;
  return { y, stacked, tight: smallest < 58, wordy: smallest >= WORDY, height: Math.ceil(at + 2) };
}

export function centreX(layout, k) {
  return layout.xs[k] + layout.widths[k] / 2;
}

export function rowTop(layout, k) {
  return layout.y.grid + k * layout.rowH;
}

/** The column or row (counted in the window) under a point, or null. */
export function columnAt(layout, x) {
  for (let k = layout.xs.length - 1; k >= 0; k--)
    if (x >= layout.xs[k]) return x < layout.xs[k] + layout.widths[k] ? k : null;
  return null;
}

export function rowAt(layout, y, rows) {
  const k = Math.floor((y - layout.y.grid) / layout.rowH);
  return k >= 0 && k < rows ? k : null;
}

/** [start, stop) of a window of at most `size` that ends just after `focus`, or begins at `start`. */
export function windowOf(total, focus, start = null, size = WINDOW) {
  if (total <= size) return [0, total];
  const from = start ?? Math.max(0, focus + 1 - size);
  const first = Math.max(0, Math.min(from, total - size));
  return [first, first + size];
}

/** Which of `count` events the rail names when it may name `most`: indices, and null for a gap. */
export function railItems(count, current, most) {
  if (count <= most) return Array.from({ length: count }, (_, i) => i);
  const keep = new Set();
  const wanted = [
    current,
    count - 1,
    0,
    1,
    current - 1,
    current + 1,
    2,
    current - 2,
    current + 2,
    3,
    4,
    5,
    6,
    7,
    8,
  ];
  for (const i of wanted) if (keep.size < most && i >= 0 && i < count) keep.add(i);
  const items = [];
  for (const i of [...keep].sort((a, b) => a - b)) {
    const before = items.length ? items[items.length - 1] : -1;
    if (i - before === 2) items.push(i - 1);
    else if (i - before > 2) items.push(null);
    items.push(i);
  }
  return items;
}

/** As many events as fit: the rail's items for a width, about as wide as their labels are long. */
export function fittingRail(labels, current, width) {
  for (let most = Math.min(labels.length, 40); most > 2; most--) {
    const items = railItems(labels.length, current, most);
    const wide = items.map((i, k) =>
      i === null ? 28 : Math.max(30, 8 * railLabel(labels, items, k, current).length + 20),
    );
    if (wide.reduce((a, b) => a + b, 0) <= width) return items;
  }
  return railItems(labels.length, current, 2);
}

/** A decode step is called by its number alone, unless it is the current one and stands after a gap. */
export function railLabel(labels, items, k, current) {
  const { name, short } = labels[items[k]];
  return items[k] === current && k > 0 && items[k - 1] === null ? name : short;
}

/** The candidates' top edge: level with the row that they come from, kept inside the board. */
export function nextTop(layout, rowMiddle, lines, lineHeight, bottom) {
  const height = 22 + lines * lineHeight;
  return Math.round(
    Math.max(
      layout.dense ? layout.y.grid : layout.y.heads,
      Math.min(rowMiddle - height / 2, bottom - height),
    ),
  );
}
