// The attention weights of the chosen line, a line a head.
import VIEW from "../view.json" with { type: "json" };
import { fillText, formatNumber } from "./format.ts";
import { isPicked, lastPassOf } from "./frame.ts";
import { Word } from "./parts.tsx";
import type { Board } from "./types";

export function weights(board: Board) {
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

function aside({ layout, frame: { event, run } }: Board, row: number) {
  const pass = lastPassOf(run, event.index, row) ?? "";
  if (!event.visible.has(row)) return fillText(VIEW.labels["thrown away"], { pass: pass.toLowerCase() });
  return layout.narrow || event.queries.length < 2 ? "" : VIEW.labels["choose line"];
}

function noWeights(board: Board, h: number) {
  const place = board.at(`w${h}none`, "wid-text soft", `weights ${h + 1}`, "col 1 / end");
  return <div {...place}>{VIEW.described["not recorded"]}</div>;
}

function weight(board: Board, share: number, among: number, h: number, j: number) {
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
