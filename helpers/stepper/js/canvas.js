// The same board past two dozen tokens: cells too many for elements, drawn on one canvas.
import VIEW from "../view.json" with { type: "json" };
import { AGAIN, EARLIER, isPicked, MASKED, NOW, rowCells } from "./frame.js";
import { columnAt, rowAt, rowTop } from "./geometry.js";
import { fillText, isolatedText } from "./format.js";

const STATES = { [NOW]: "now", [AGAIN]: "again", [MASKED]: "masked", [EARLIER]: "earlier" };

function sized(canvas, layout) {
  const scale = globalThis.devicePixelRatio || 1;
  const width = Math.ceil(layout.xEnd + 2);
  const height = layout.height;
  if (canvas.width !== Math.ceil(width * scale) || canvas.height !== Math.ceil(height * scale)) {
    canvas.width = Math.ceil(width * scale);
    canvas.height = Math.ceil(height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const g = canvas.getContext("2d");
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, width, height);
  return g;
}

function hatching(g, colour) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 4;
  const t = tile.getContext("2d");
  t.strokeStyle = colour;
  t.lineWidth = 1;
  t.beginPath();
  t.moveTo(-1, 1);
  t.lineTo(1, -1);
  t.moveTo(0, 4);
  t.lineTo(4, 0);
  t.moveTo(3, 5);
  t.lineTo(5, 3);
  t.stroke();
  return g.createPattern(tile, "repeat");
}

function drawHeads(g, board, theme) {
  const { layout, frame, cols } = board;
  const top = layout.y.heads + 14;
  for (let j = cols[0]; j < cols[1]; j++) {
    const column = frame.columns[j];
    const x = layout.xs[j - cols[0]];
    const w = layout.widths[j - cols[0]] - 1;
    if (column.state === "absent") continue;
    g.fillStyle = column.origin === "prompt" ? theme.line : theme.gf;
    if (column.state === "present") g.fillRect(x, top, w, 10);
    g.strokeStyle = column.state === "emitted" ? theme.gen : theme.q;
    g.lineWidth = 1.5;
    if (column.live || column.state === "emitted") g.strokeRect(x + 0.5, top, w - 0.5, 10);
  }
  drawTicks(g, board, theme);
}

function drawTicks(g, board, theme) {
  const { layout, frame, cols } = board;
  const every = [1, 2, 4, 8, 16, 32].find((n) => n * layout.widths[0] >= 26) ?? 32;
  g.fillStyle = theme.soft;
  g.font = "11px system-ui, sans-serif";
  g.textAlign = "center";
  g.textBaseline = "alphabetic";
  for (let j = cols[0]; j < cols[1]; j++) {
    const number = frame.columns[j].position;
    if (j === 0 || number % every === 0)
      g.fillText(
        String(number),
        layout.xs[j - cols[0]] + layout.widths[j - cols[0]] / 2,
        layout.y.heads + 10,
      );
  }
}

function drawGrid(g, board, theme) {
  const { layout, frame, cols, rows } = board;
  const w = layout.widths[0];
  const h = layout.rowH;
  const gap = Math.min(w, h) >= 6 ? 1 : 0.5;
  const paths = {
    [NOW]: new Path2D(),
    [AGAIN]: new Path2D(),
    [MASKED]: new Path2D(),
    [EARLIER]: new Path2D(),
  };
  const arm = Math.min(w, h) / 4;
  const dot = Math.min(w, h) / 4.5;
  for (let i = rows[0]; i < rows[1]; i++) {
    const { states } = rowCells(frame.run, frame.event.index, i, cols[0], cols[1]);
    const y = rowTop(layout, i - rows[0]);
    for (let k = 0; k < states.length; k++) {
      if (!states[k]) continue;
      const x = layout.xs[k];
      const path = paths[states[k]];
      if (states[k] === NOW || states[k] === AGAIN) path.rect(x, y, w - gap, h - gap);
      else if (states[k] === EARLIER) path.rect(x + w / 2 - dot, y + h / 2 - dot, 2 * dot, 2 * dot);
      else {
        const [cx, cy] = [x + w / 2, y + h / 2];
        path.moveTo(cx - arm, cy - arm);
        path.lineTo(cx + arm, cy + arm);
        path.moveTo(cx - arm, cy + arm);
        path.lineTo(cx + arm, cy - arm);
      }
    }
  }
  g.fillStyle = theme.q;
  g.fill(paths[NOW]);
  g.fillStyle = theme.panel;
  g.fill(paths[AGAIN]);
  g.fillStyle = hatching(g, theme.q);
  g.fill(paths[AGAIN]);
  g.lineWidth = 1;
  g.strokeStyle = theme.ring;
  g.stroke(paths[EARLIER]);
  g.strokeStyle = theme.soft;
  g.lineWidth = 0.8;
  g.stroke(paths[MASKED]);
}

function drawRows(g, board, theme, kind, top, height) {
  const { layout, frame, cols } = board;
  const edge = theme[kind];
  for (let j = cols[0]; j < cols[1]; j++) {
    const { row } = frame.columns[j];
    const x = layout.xs[j - cols[0]];
    const w = layout.widths[j - cols[0]] - 1;
    g.setLineDash(row === "made" || row === "dropped" ? [2, 2] : []);
    g.fillStyle = theme[`${kind}f`];
    if (row === "written" || row === "read" || row === "rest") g.fillRect(x, top, w, height);
    g.strokeStyle = row === "written" || row === "made" ? edge : theme.line;
    g.lineWidth = row === "written" ? 2 : 1;
    if (row !== "rest") g.strokeRect(x + 0.5, top + 0.5, w - 1, height - 1);
  }
  g.setLineDash([]);
}

function drawWeights(g, board, theme) {
  const { layout, frame, cols } = board;
  const { y } = layout;
  g.fillStyle = theme.q;
  frame.weights.forEach((line, h) => {
    if (!line.weights) return;
    const bottom = y.weights + (h + 1) * y.lineH - 4;
    line.weights.forEach((weight, k) => {
      const j = line.columns[k];
      if (j < cols[0] || j >= cols[1]) return;
      const w = layout.widths[j - cols[0]] - 1;
      const height = isPicked(weight, line.columns.length) ? Math.max(1.5, weight * (y.lineH - 6)) : 0;
      g.fillRect(layout.xs[j - cols[0]], bottom - height, w, height);
    });
    g.fillRect(layout.x0, bottom, layout.xEnd - layout.x0, 0.5);
  });
}

/** Draw heads, grid, K, weights and V. `theme` holds the colours of the page as it is now. */
export function drawDense(board, theme) {
  const { layout } = board;
  const g = sized(board.canvas, layout);
  drawHeads(g, board, theme);
  drawGrid(g, board, theme);
  drawRows(g, board, theme, "k", layout.y.k, layout.y.kH);
  if (board.panels.has("weights")) drawWeights(g, board, theme);
  drawRows(g, board, theme, "v", layout.y.v, layout.y.vH);
}

/** What stands under a point of the canvas, in words. */
export function denseTitle(board, x, y) {
  const { layout, frame, cols, rows } = board;
  const column = columnAt(layout, x);
  if (column === null) return "";
  const key = frame.columns[cols[0] + column];
  const name = (c) => `${isolatedText(c.text)} (${c.position})`;
  if (key.state === "absent") return "not there yet";
  const row = rowAt(layout, y, rows[1] - rows[0]);
  if (row === null)
    return `${name(key)}${y > layout.y.k ? `: K and V ${VIEW.rows[key.row] ?? key.row}` : ""}`;
  const query = frame.columns[rows[0] + row];
  const { states, counts } = rowCells(frame.run, frame.event.index, query.index, key.index, key.index + 1);
  if (!states[0]) return name(key);
  const said = fillText(VIEW.cells[STATES[states[0]]], { times: counts[0] });
  return `${name(query)} looks at ${name(key)}: ${said}`;
}
