// The attention weights of the chosen line, a line a head.
import VIEW from "../view.json" with { type: "json" };
import { fillText, formatNumber } from "./format.js";
import { isPicked, lastPassOf } from "./frame.js";
import { Word } from "./parts.jsx";
/** @import { Board } from "./types" */

/** @param {Board} board */
export function weights(board) {
  const { layout, frame, cols } = board;
  if (!frame.weights.length) return null; // a layer without heads
  const { index, text } = frame.columns[frame.row];
  const caption = (
    <div {...board.at("caption", "wid-caption", "caption", `1 / ${layout.narrow ? -1 : "notes"}`)}>
      {VIEW.labels.weights} of <Word text={text} most={18} />
      <span class="wid-aside">{aside(board, index)}</span>
    </div>
  );
  const lines = frame.weights.map((line, h) => {
    const { weights } = line;
    if (!weights) return noWeights(board, h);
    if (layout.dense) return null;
    return line.columns.map(
      (j, k) => j >= cols[0] && j < cols[1] && weight(board, weights[k], line.columns.length, h, j),
    );
  });
  return [caption, lines];
}

/** @param {Board} board @param {number} row */
function aside({ layout, frame: { event, run } }, row) {
  const pass = lastPassOf(run, event.index, row) ?? "";
  if (!event.visible.has(row)) return fillText(VIEW.labels["thrown away"], { pass: pass.toLowerCase() });
  return layout.narrow || event.queries.length < 2 ? "" : VIEW.labels["choose line"];
}

/** @param {Board} board @param {number} h */
function noWeights(board, h) {
  const place = board.at(`w${h}none`, "wid-text soft", `weights ${h + 1}`, "col 1 / end");
  return <div {...place}>{VIEW.described["not recorded"]}</div>;
}

/** @param {Board} board @param {number} share @param {number} among @param {number} h @param {number} j */
function weight(board, share, among, h, j) {
  const { lineH, stacked } = board.layout;
  const key = `w${h}.${j}`;
  const [row, column] = [`weights ${h + 1}`, `col ${j - board.cols[0] + 1}`];
  if (!isPicked(share, among)) return <div {...board.at(key, "wid-none soft", row, column)}>·</div>;
  const digits = board.frame.columns.length <= VIEW.digits_up_to;
  const side = Math.max(2, Math.sqrt(share) * Math.min(15, lineH - 4));
  return (
    <div
      key={key}
      class={`wid-share ${digits ? "digits" : ""} ${stacked ? "stacked" : ""}`}
      style={`grid-row:${row};grid-column:${column}`}
    >
      <i {...board.keyed(`${key}s`, "wid-weight")} style={`width:${side}px;height:${side}px`} />
      {digits && <span {...board.keyed(`${key}d`, "number")}>{formatNumber(share)}</span>}
    </div>
  );
}
