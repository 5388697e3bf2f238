// The same board past two dozen tokens: cells too many for elements, drawn on one canvas.
import { AGAIN, COMING, EARLIER, isPicked, MASKED, NOW, rowCells } from "./frame.js";
import { columnAt, rowAt, rowTop } from "./geometry.js";

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

/** Rectangles of the cells of every state, and of the weights that stand in them. */
function gridPaths(board) {
  const { layout, frame, cols, rows } = board;
  const [w, h] = [layout.widths[0], layout.rowH];
  const gap = Math.min(w, h) >= 6 ? 1 : 0.5;
  const cells = Object.fromEntries([NOW, AGAIN, EARLIER, COMING].map((state) => [state, new Path2D()]));
  const marks = { [NOW]: new Path2D(), [AGAIN]: new Path2D(), [EARLIER]: new Path2D() };
  for (let i = rows[0]; i < rows[1]; i++) {
    const { states } = rowCells(frame.run, frame.event.index, i, cols[0], cols[1]);
    const shares = board.sharesOf(i);
    const y = rowTop(layout, i - rows[0]);
    for (let k = 0; k < states.length; k++) {
      if (!states[k] || states[k] === MASKED) continue;
      const [cx, cy] = [layout.xs[k] + w / 2, y + h / 2];
      const dot = Math.min(w, h) / 6;
      if (states[k] === COMING) cells[COMING].rect(cx - 0.5, cy - 0.5, 1, 1);
      else if (states[k] !== EARLIER || !shares) cells[states[k]].rect(layout.xs[k], y, w - gap, h - gap);
      const share = shares?.get(cols[0] + k) ?? 0;
      const side = share ? Math.max(1.2, Math.sqrt(share) * (Math.min(w, h) - gap)) / 2 : shares ? 0.4 : dot;
      marks[states[k]]?.rect(cx - side - gap / 2, cy - side - gap / 2, 2 * side, 2 * side);
    }
  }
  return { cells, marks };
}

function drawGrid(g, board, theme) {
  const { cells, marks } = gridPaths(board);
  const paint = (colour, path) => {
    g.fillStyle = colour;
    g.fill(path);
  };
  paint(theme.ring, cells[COMING]);
  paint(theme.qf, cells[NOW]);
  paint(theme.panel, cells[AGAIN]);
  paint(hatching(g, theme.qp), cells[AGAIN]);
  paint(theme.qp, marks[EARLIER]);
  paint(theme.q, marks[NOW]);
  paint(theme.q, marks[AGAIN]);
}

function drawRows(g, board, theme, kind, top, height) {
  const { layout, frame, cols } = board;
  const edge = theme[kind];
  for (let j = cols[0]; j < cols[1]; j++) {
    const { row } = frame.columns[j];
    const x = layout.xs[j - cols[0]];
    const w = layout.widths[j - cols[0]] - 1;
    g.setLineDash(row === "dropped" ? [2, 2] : []);
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

/** What stands under a point of the canvas: {row, column, line}, or null. */
export function denseAt(board, x, y) {
  const { layout, frame, cols, rows } = board;
  const column = columnAt(layout, x);
  if (column === null || frame.columns[cols[0] + column].state === "absent") return null;
  const row = rowAt(layout, y, rows[1] - rows[0]);
  return { row: row === null ? frame.row : rows[0] + row, column: cols[0] + column, line: null };
}
