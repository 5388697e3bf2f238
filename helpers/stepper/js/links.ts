// What belongs together lights up together: a weight, its V, its term in the sum, the context it goes into.
import VIEW from "../view.json" with { type: "json" };
import { fillText, formatNumber, isolatedText } from "./format.ts";
import { weightsIn } from "./frame.ts";
import { contentOf, headName } from "./trace.ts";
import type { About, Frame } from "./types";

/** What a node of the board is about, from its key: {row, column, line}; line counts the heads shown. */
export function aboutKey(key: string, frame: Frame): About | null {
  const [, kind, first, second] = /^([a-z]+)(\d+)?(?:\.(\d+))?/.exec(key) ?? [];
  const [a, b] = [first, second].map((text) => (text === undefined ? null : Number(text)));
  if (kind === "c") return { row: a, column: b, line: null };
  if (kind === "w" || kind === "t") return b === null ? null : { row: frame.row, column: b, line: a };
  if (kind === "ctx") return b === null ? null : { row: a, column: null, line: b };
  if (kind === "sum") return { row: frame.row, column: null, line: a };
  if (["h", "k", "v"].includes(kind) && a !== null) return { row: frame.row, column: a, line: null };
  return null;
}

/** Keys of the nodes that light up with it. */
export function linked({ row, column, line }: About, frame: Frame) {
  const keys = column === null ? [] : [`h${column}`, `k${column}`, `v${column}`, `c${row}.${column}`];
  const lines = line === null ? frame.weights.map((_, h) => h) : [line];
  if (row === frame.row && column !== null)
    for (const h of lines)
      keys.push(`w${h}.${column}`, `w${h}.${column}s`, `w${h}.${column}d`, `t${h}.${column}`);
  if (line !== null) keys.push(`ctx${row}.${line}`, `w${line}`);
  keys.push(`b${row}`);
  return keys;
}

/** What is pointed at, in words: who looks at whom, by how much, and what that adds to the context. */
export function pointedAt({ row, column, line }: About, frame: Frame) {
  const { record, run, event, layer } = frame;
  if (row === null || column === null) return "";
  const head = line === null ? frame.head : frame.weights[line].head;
  const { columns, weights } = weightsIn(record, run, event, row, layer, head);
  const k = columns.indexOf(column);
  if (!weights || k < 0) return "";
  const said = fillText(VIEW.labels.pointed, {
    row: isolatedText(record.tokens[row].text, 24),
    column: isolatedText(record.tokens[column].text, 24),
    head: headName(record, head),
    weight: formatNumber(weights[k]),
  });
  const value = contentOf(record, "v", column, layer);
  if (head === null || value?.length !== 1) return said;
  const term = { weight: formatNumber(weights[k]), value: formatNumber(value[0]) };
  return (
    said + fillText(VIEW.labels["pointed term"], { ...term, product: formatNumber(weights[k] * value[0]) })
  );
}
