// How wide the words of a record are: what its columns, its names and its candidates need in every pass.
import { textWidths } from "./dom.ts";
import { clippedText, formatNumber } from "./format.ts";
import { NARROW_TEXT } from "./geometry.ts";
import { contentOf } from "./trace.ts";
import { keyTexts, untouched } from "./words.ts";
import type { Frame, TraceRecord } from "./types";

const LABEL_FONT = "600 13px system-ui, sans-serif";
const WORD_FONT = "13px system-ui, sans-serif";
const PLACE_FONT = "11px system-ui, sans-serif";
const SAID = [40, 92]; // least and greatest width of the candidates' words

/** Whose work a row is that does not run, as short as it can be said: "prefill's". */
export const whose = (pass: string) => untouched(pass).split(",")[0];

/**
 * Widths in pixels: what each column wants, the widest name at the left, one for the words of all candidates, so that
 * their bars get the rest. `lab`: whether K's contents are shown.
 */
export function measuresOf({ record, run, heads, ...frame }: Frame, lab: boolean) {
  const columns = frame.columns.slice(0, 32);
  const texts = columns.map((c) => clippedText(c.text, 40));
  const held = columns.map((c) => contentsOf(record, c.index, lab));
  const widest = held.map(({ k, v }) => Math.max(0, ...textWidths([...k.flat(), ...v], WORD_FONT)));
  const inOneLine = held.flatMap(({ k }) => k.map((parts) => parts.join(" · ")));
  // Those that may be named under a row: the rows of the last pass are live.
  const passes = run.events.slice(0, -1).map((event) => whose(event.name));
  // The words are set smaller where room is short, numbers and the names of the passes are not.
  const places = textWidths(passes, PLACE_FONT).map((width) => width / NARROW_TEXT);
  const outs = record.runs.flatMap((one) => one.events.flatMap((event) => event.part.out));
  const words = new Set(outs.slice(0, 64).flatMap((out) => out.top.map(([word]) => clippedText(word, 12))));
  const said = textWidths([...words], LABEL_FONT).map(Math.ceil);
  return {
    record,
    wants: textWidths(texts, WORD_FONT).map((word, k) => Math.max(word, widest[k] + 6)),
    key: Math.max(0, ...textWidths(inOneLine, WORD_FONT)),
    label: Math.max(...textWidths([...texts, ...heads.map((h) => h.name)], LABEL_FONT), ...places),
    said: Math.min(SAID[1], Math.max(SAID[0], ...said)),
  };
}

/** What stands in a token's K and V, layer by layer: columns that fit them all do not move between layers. */
function contentsOf(record: TraceRecord, index: number, lab: boolean) {
  const contents = (kind: "k" | "v") =>
    record.values.map(({ layer }) => contentOf(record, kind, index, layer));
  return {
    k: lab ? contents("k").map(keyTexts) : [],
    v: contents("v").flatMap((v) => (v?.length === 1 ? [formatNumber(v[0])] : [])),
  };
}
