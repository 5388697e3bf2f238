// Where things stand, in pixels: pure arithmetic on the width, the number of tokens and what is shown.
import VIEW from "../view.json" with { type: "json" };
import type { Layout } from "./types";

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
const GAP = 18; // between the tokens and what stands beside them
const DRAWER = 7; // between the cache's edge and its rows
const NEXT_MIN = 200;
const NEXT_MAX = 320;

/** Left edges of the tokens' columns, the first of all, and widths. */
type Across = { xs: number[]; x0: number; widths: number[] };
type Box = { x: number; width: number } | null;

const sum = (numbers: number[]) => numbers.reduce((total, x) => total + x, 0);

function rowHeight(rows: number, narrow: boolean) {
  const height = rows <= 5 ? 34 : rows <= 8 ? 30 : rows <= 12 ? 24 : rows <= 16 ? 22 : 20;
  return narrow && rows <= 12 ? Math.max(30, height) : height;
}

/** Equal columns where the words fit; else only long words get more; never under COLUMN_MIN. */
export function columnWidths(room: number, wants: number[], widest = COLUMN_MAX) {
  const most = wants.length > 12 ? CROWDED : widest;
  const equal = Math.floor(Math.min(widest, room / wants.length));
  const needs = wants.map((want) => Math.min(most, Math.max(COLUMN_MIN, Math.ceil(want))));
  if (needs.every((need) => need <= equal)) return wants.map(() => equal);
  for (let common = Math.max(...needs); common >= COLUMN_MIN; common--) {
    const widths = needs.map((need) => Math.max(need, common));
    if (sum(widths) <= room) return widths;
  }
  return needs; // the board scrolls
}

/** `needs`: widths that the columns want where room is not short; what stands beside them must not push them out. */
function chooseMode(
  width: number,
  needs: number[],
  dense: boolean,
  { notes, next }: { notes: number; next: number },
) {
  const room = width - LABELS - GAP - notes;
  if (dense) return room >= 3 * needs.length && width >= 560 ? "medium" : "narrow";
  const least = sum(columnWidths(0, needs));
  if (room - next >= Math.max(46 * needs.length, least)) return "wide";
  return room >= Math.max(36 * needs.length, least) ? "medium" : "narrow";
}

/**
 * The layout of the board, in pixels. Of the columns in the window; `heads` is how many lines of attention weights
 * there are, `contexts`: their contexts are shown, `lab`: K's contents and the ledger, too; `wants`, `label` and
 * `key` are the widths that the words of the columns' heads, the widest row label and the widest row of K in one
 * line need.
 */
export function layoutOf({
  width,
  columns,
  heads,
  contexts,
  lab,
  wants,
  label,
  key,
}: {
  width: number;
  columns: number;
  heads: number;
  contexts: boolean;
  lab: boolean;
  wants: number[];
  label: number;
  key: number;
}) {
  const dense = columns >= DENSE_FROM;
  const right = {
    notes: Math.max(dense ? 240 : 204, contexts ? heads * 46 + 12 : 0),
    next: NEXT_MIN,
  };
  const beside = wants.map((want) => want + 2 * 2 + BORDERS);
  const mode =
    lab && dense ? "narrow" : chooseMode(width, dense ? Array(columns).fill(3) : beside, dense, right);
  const [narrow, wide] = [mode === "narrow", mode === "wide"];
  const size = narrow ? NARROW_TEXT : 1;
  const gap = narrow ? 1 : 2; // left and right of every cell
  const x0 = narrow ? Math.min(82, Math.max(44, Math.ceil(label * size) + 12)) : LABELS;
  const room = width - x0 - (narrow ? 0 : right.notes + GAP + (wide ? right.next : 0));
  const around = 2 * gap + (narrow ? BORDERS_NARROW : BORDERS);
  const needs = wants.map((want) => want * size + around);
  const widths = dense
    ? denseWidths(room, columns, narrow)
    : columnWidths(room, needs, width > 1000 ? COLUMN_MAX_WIDE : COLUMN_MAX);
  const xs = widths.map((_, k) => x0 + sum(widths.slice(0, k)));
  const xEnd = x0 + sum(widths);
  const notesX = xEnd + GAP;
  const nextX = notesX + right.notes;
  const notes = { x: notesX, width: dense ? Math.min(NEXT_MAX, width - notesX) : right.notes };
  const next = dense ? notes : wide ? { x: nextX, width: Math.min(NEXT_MAX, width - nextX) } : null;
  const rowH = dense
    ? Math.min(denseRow(columns), Math.max(3, Math.ceil(2 * widths[0])))
    : rowHeight(columns, narrow);
  const layout = {
    ...{ mode, dense, narrow, gap, x0, xs, widths, xEnd, rowH },
    notes: narrow ? null : notes,
    next: narrow ? null : next,
    // as wide as the columns, or as lets the board scroll to its end in the same way as to a column
    width: narrow ? Math.max(xEnd, width + scrollFor({ xs, x0, widths }, columns - 1, width)) : width,
  };
  const tight = Math.min(...widths) < key + 2 * gap + BORDERS_NARROW;
  return { ...layout, tight, columns: columnTracks(layout), ...heights(layout, columns, heads, lab) };
}

/** How far a board scrolls to show column k whole, and a whole column at its left edge. */
export function scrollFor({ xs, x0, widths }: Across, k: number, width: number) {
  const least = xs[k] + widths[k] - width;
  return (xs.find((x) => x - x0 >= least) ?? xs[k]) - x0;
}

/** In sixteenths of a pixel: browsers lay grids out in fractions of two, and the canvas has to fit. */
function denseWidths(room: number, columns: number, narrow: boolean): number[] {
  const each = Math.max(narrow ? 4 : 3, Math.min(20, Math.floor((16 * room) / columns) / 16));
  return Array(columns).fill(each);
}

function denseRow(rows: number) {
  return Math.max(3, Math.min(14, Math.floor((16 * 420) / rows) / 16));
}

type Sheet = { narrow: boolean; dense: boolean; rowH: number; width: number; widths: number[] };

/** The rows of the sheet from top to bottom: name, height, how many. */
function rowTracks(
  { narrow, dense, rowH, width }: Sheet,
  rows: number,
  heads: number,
  lab: boolean,
  lineH: number,
): [string, number, number?][] {
  const said = 18 + (lab ? (width < 480 ? 34 : 18) : 0);
  return [
    ["heads", dense ? 26 : 38],
    ["", dense ? 6 : 10],
    ["cell", rowH, rows],
    ["", 14],
    ["caption", 22],
    ["weights", lineH, heads],
    ["", 14],
    ["drawer", DRAWER],
    ["k", dense ? 20 : lab ? 36 : 26],
    ["", 6],
    ["v", dense ? 20 : 36],
    ["", DRAWER],
    ["under", 5], // where it is narrow, what is said of the rows stands under them
    ["said", said, narrow ? 1 : 0],
    ["end", 2],
  ];
}

/** Tops of the first row of each name, and heights. */
function heights(sheet: Sheet, rows: number, heads: number, lab: boolean) {
  const smallest = Math.min(...sheet.widths);
  const stacked = !sheet.dense && smallest < 50 && rows <= VIEW.digits_up_to;
  const lineH = stacked ? 34 : sheet.dense ? 24 : 21;
  const tracks = rowTracks(sheet, rows, heads, lab, lineH).filter(([, , many]) => many !== 0);
  const [y, size]: Record<string, number>[] = [{}, {}];
  let height = 0;
  for (const [name, each, many = 1] of tracks) {
    [y[name], size[name]] = [height, each];
    height += each * many;
  }
  const below = tracks.map(([name, each, many = 1]) => `repeat(${many}, ${name && `[${name}] `}${each}px)`);
  const fits = { stacked, wordy: smallest >= WORDY };
  return { y, size, rows: below.join(" "), ...fits, lineH, height: Math.ceil(height) };
}

/** The columns of the sheet: names, tokens, what stands beside them. */
function columnTracks({
  x0,
  widths,
  notes,
  next,
  dense,
}: Across & { notes: Box; next: Box; dense: boolean }) {
  const tokens = widths.map((width) => `[col] ${width}px`).join(" ");
  const beside = notes ? `${GAP}px [notes${dense ? " next" : ""}] ${notes.width}px` : "";
  return `[names] ${x0}px ${tokens} [end] ${beside} ${next && !dense ? `[next] ${next.width}px` : ""}`;
}

export const rowTop = (layout: Layout, k: number) => layout.y.cell + k * layout.rowH;

/** The column (counted in the window) under a point, or null. */
export function columnAt({ xs, widths }: Across, x: number) {
  const k = xs.findIndex((left, k) => x >= left && x < left + widths[k]);
  return k < 0 ? null : k;
}

/** The row under a point, or null. */
export function rowAt(layout: Layout, y: number, rows: number) {
  const k = Math.floor((y - layout.y.cell) / layout.rowH);
  return k >= 0 && k < rows ? k : null;
}

/** [start, stop) of a window of at most `size` that ends just after `focus`, or begins at `start`. */
export function windowOf(total: number, focus: number, start: number | null = null, size = WINDOW) {
  if (total <= size) return [0, total];
  const first = Math.max(0, Math.min(start ?? focus + 1 - size, total - size));
  return [first, first + size];
}

/** Which of `count` events the rail names when it may name `most`: indices, and null for a gap. */
export function railItems(count: number, current: number, most: number) {
  const items: (number | null)[] = [];
  const around = (by: number) => [current - by, current + by];
  const wanted = [current, count - 1, 0, 1, ...around(1), 2, ...around(2), 3, 4, 5, 6, 7, 8];
  const there = new Set(wanted.filter((i) => i >= 0 && i < count));
  const keep = count <= most ? [...Array(count).keys()] : [...there].slice(0, most).sort((a, b) => a - b);
  keep.forEach((i, k) => {
    const skipped = i - (keep[k - 1] ?? -1) - 1;
    if (skipped) items.push(skipped === 1 ? i - 1 : null);
    items.push(i);
  });
  return items;
}

type Labels = { name: string; short: string }[];

/** As many events as fit: the rail's items for a width, about as wide as their labels are long. */
export function fittingRail(labels: Labels, current: number, width: number) {
  for (let most = Math.min(labels.length, 40); ; most--) {
    const items = railItems(labels.length, current, most);
    const wide = items.map((i, k) =>
      i === null ? 28 : Math.max(30, 8 * railLabel(labels, items, k, current).length + 20),
    );
    if (most <= 2 || sum(wide) <= width) return items;
  }
}

/** A decode step is called by its number alone, unless it is the current one and stands after a gap. */
export function railLabel(labels: Labels, items: (number | null)[], k: number, current: number) {
  const { name, short } = labels[items[k] ?? 0];
  return items[k] === current && k > 0 && items[k - 1] === null ? name : short;
}

/** The candidates' top edge: level with the row that they come from, kept above the cache, and, where they stand in one
 * column with the sums, above these. */
export function nextTop({ y, dense }: Layout, rowMiddle: number, lines: number, lineHeight: number) {
  const height = 22 + lines * lineHeight;
  const below = dense ? y.caption : y.k;
  return Math.round(Math.max(dense ? y.cell : y.heads, Math.min(rowMiddle - height / 2, below - 6 - height)));
}
