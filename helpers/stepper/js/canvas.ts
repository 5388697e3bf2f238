// The same board past two dozen tokens: cells too many for elements, drawn on one canvas.
import { AGAIN, AHEAD, COMING, EARLIER, isPicked, MASKED, NOW, rowCells, sharesOf } from "./frame.ts";
import { columnAt, rowAt, rowTop } from "./geometry.ts";
import type { About, Board, Theme } from "./types";

type Context = CanvasRenderingContext2D;

function contextOf(canvas: HTMLCanvasElement) {
  return canvas.getContext("2d") as Context;
}

function sized(canvas: HTMLCanvasElement, width: number, height: number) {
  const scale = globalThis.devicePixelRatio || 1;
  const [wide, high] = [Math.ceil(width * scale), Math.ceil(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) {
    Object.assign(canvas, { width: wide, height: high });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  const g = contextOf(canvas);
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, width, height);
  return g;
}

function hatching(g: Context, colour: string) {
  const tile = Object.assign(document.createElement("canvas"), { width: 4, height: 4 });
  const t = contextOf(tile);
  t.strokeStyle = colour;
  t.stroke(new Path2D("M-1 1L1 -1M0 4L4 0M3 5L5 3"));
  return g.createPattern(tile, "repeat") ?? colour;
}

/** Each column in the window with its left edge and, of the width of all, what is painted. */
function columnsOf({ layout, frame, cols }: Board) {
  return layout.xs.map((x, k) => ({ x, w: layout.widths[k] - 1, column: frame.columns[cols[0] + k] }));
}

/** An edge within a box, at most a quarter as thick as that is wide: what it holds is to be seen. */
function edge(g: Context, most: number, x: number, y: number, w: number, h: number) {
  const thick = (g.lineWidth = Math.min(most, w / 4));
  g.strokeRect(x + thick / 2, y + thick / 2, w - thick, h - thick);
}

function drawHeads(g: Context, board: Board, theme: Theme) {
  const top = board.layout.y.heads + 14;
  for (const { x, w, column } of columnsOf(board)) {
    if (column.state === "absent") continue;
    g.fillStyle = column.origin === "prompt" ? theme.line : theme.gf;
    if (column.state === "present") g.fillRect(x, top, w, 10);
    g.strokeStyle = column.state === "emitted" ? theme.gen : theme.q;
    if (column.live || column.state === "emitted") edge(g, 1.5, x, top, w, 10);
  }
}

function drawTicks(g: Context, board: Board, theme: Theme) {
  const { y, widths } = board.layout;
  const every = [1, 2, 4, 8, 16].find((n) => n * widths[0] >= 26) ?? 32;
  g.fillStyle = theme.soft;
  g.font = "11px system-ui, sans-serif";
  g.textAlign = "center";
  for (const { x, column } of columnsOf(board))
    if (column.index === 0 || column.place % every === 0)
      g.fillText(String(column.place), x + widths[0] / 2, y.heads + 10);
}

/** Rectangles of the cells of every state, and of the weights that stand in them; of masked cells a × each, where the
 * board shows them at this size. */
function gridPaths(board: Board) {
  const { layout, frame, cols, rows } = board;
  const [w, h] = [layout.widths[0], layout.rowH];
  const gap = Math.min(w, h) >= 6 ? 1 : 0.5;
  const [cells, marks] = [0, 1].map(() => Array.from({ length: AHEAD + 1 }, () => new Path2D())); // by state
  for (let i = rows[0]; i < rows[1]; i++) {
    const { states } = rowCells(frame.run, frame.event.index, i, cols[0], cols[1], frame.ahead);
    const shares = sharesOf(frame, i);
    const y = rowTop(layout, i - rows[0]);
    for (let k = 0; k < states.length; k++) {
      const state = states[k];
      if (!state || (state === MASKED && !board.lab)) continue;
      const [cx, cy] = [layout.xs[k] + w / 2, y + h / 2];
      if (state === MASKED) {
        cross(cells[state], cx - gap / 2, cy - gap / 2, Math.min(w, h) / 4);
        continue;
      }
      if (state === COMING) cells[state].rect(cx - 0.5, cy - 0.5, 1, 1);
      else if (state !== EARLIER || !shares) cells[state].rect(layout.xs[k], y, w - gap, h - gap);
      const share = shares?.get(cols[0] + k) ?? 0;
      const dot = shares ? 0.4 : Math.min(w, h) / 6;
      const side = share ? Math.max(1.2, Math.sqrt(share) * (Math.min(w, h) - gap)) / 2 : dot;
      marks[state].rect(cx - side - gap / 2, cy - side - gap / 2, 2 * side, 2 * side);
    }
  }
  return { cells, marks };
}

/** A cross around (x, y). */
function cross(path: Path2D, x: number, y: number, arm: number) {
  for (const side of [-1, 1]) {
    path.moveTo(x - arm, y - side * arm);
    path.lineTo(x + arm, y + side * arm);
  }
}

function drawGrid(g: Context, board: Board, theme: Theme) {
  const { cells, marks } = gridPaths(board);
  const paint = (colour: string | CanvasPattern, path: Path2D) => {
    g.fillStyle = colour;
    g.fill(path);
  };
  paint(theme.ring, cells[COMING]);
  paint(theme.qf, cells[NOW]);
  paint(theme.panel, cells[AGAIN]);
  paint(hatching(g, theme.qp), cells[AGAIN]);
  paint(hatching(g, theme.ring), cells[AHEAD]);
  g.strokeStyle = theme.soft;
  g.lineWidth = Math.max(0.6, Math.min(1.2, board.layout.widths[0] / 8));
  g.stroke(cells[MASKED]);
  paint(theme.qp, marks[EARLIER]);
  paint(theme.q, marks[NOW]);
  paint(theme.q, marks[AGAIN]);
}

function drawEntries(g: Context, board: Board, theme: Theme, kind: "k" | "v") {
  const [top, height] = [board.layout.y[kind], board.layout.size[kind]];
  if (board.frame.state) return;
  for (const { x, w, column } of columnsOf(board)) {
    const { entry } = column;
    if (entry === "evicted") {
      g.fillStyle = theme.line;
      g.fillRect(x, top + height / 2, w, 1);
      continue;
    }
    g.fillStyle = theme[`${kind}f`];
    if (entry === "written" || entry === "read") g.fillRect(x, top, w, height);
    g.strokeStyle = entry === "written" || entry === "made" ? theme[kind] : theme.line;
    edge(g, entry === "written" ? 2 : 1, x, top, w, height);
  }
}

function drawWeights(g: Context, { layout, frame, cols }: Board, theme: Theme) {
  g.fillStyle = theme.q;
  frame.weights.forEach(({ weights, columns }, h) => {
    if (!weights) return;
    const bottom = layout.y.weights + (h + 1) * layout.lineH - 4;
    columns.forEach((j, k) => {
      if (j < cols[0] || j >= cols[1]) return;
      const height = isPicked(weights[k], columns.length)
        ? Math.max(1.5, weights[k] * (layout.lineH - 6))
        : 0;
      g.fillRect(layout.xs[j - cols[0]], bottom - height, layout.widths[0] - 1, height);
    });
    g.fillRect(layout.x0, bottom, layout.xEnd - layout.x0, 0.5);
  });
}

/** Draw heads, grid, K, weights and V. `theme` holds the colours of the page as it is now. */
export function drawDense(board: Board, canvas: HTMLCanvasElement, theme: Theme) {
  const { xEnd, height } = board.layout;
  const g = sized(canvas, Math.ceil(xEnd + 2), height);
  drawHeads(g, board, theme);
  drawTicks(g, board, theme);
  drawGrid(g, board, theme);
  drawEntries(g, board, theme, "k");
  drawWeights(g, board, theme);
  drawEntries(g, board, theme, "v");
}

/** What stands under a point of the canvas, or null. */
export function denseAt({ layout, frame, cols, rows }: Board, x: number, y: number): About | null {
  const column = columnAt(layout, x);
  if (column === null || frame.columns[cols[0] + column].state === "absent") return null;
  const row = rowAt(layout, y, rows[1] - rows[0]);
  return { row: row === null ? frame.row : rows[0] + row, column: cols[0] + column, line: null };
}
