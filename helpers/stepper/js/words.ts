// What a pass says: sentences, notes, the ledger, the pass in words. The sentences stand in view.json. A sentence
// is a list of plain strings and of {token: text} for words that tokens say.
import VIEW from "../view.json" with { type: "json" };
import { clippedText, fill, fillText, formatNumber, formatPercent, isolatedText } from "./format.ts";
import { AGAIN, AHEAD, isPicked, lastPassOf, MASKED, NOW, rowCells, weightsIn } from "./frame.ts";
import { gather, headName, sizeOf, spread } from "./trace.ts";
import type { Ranges } from "./schema";
import type { Filled, Frame, Line, Parts, TraceRecord } from "./types";

const STOP_WORDS = new Set(["<eos>", "</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>"]);

const say = (name: keyof typeof VIEW.sentences, values?: Filled) => fill(VIEW.sentences[name], values);

function inOne(...sentences: Parts[]): Parts {
  return sentences.filter((parts) => parts.length).flatMap((parts, i) => (i ? [" ", ...parts] : parts));
}

/** The word that comes out, as one of the sentences that begin with "out" or "first", and what follows it. */
function comesOut({ event, record, run }: Frame, name: "out" | "out same" | "first" | "first one") {
  const word = record.tokens[event.part.out[0].chosen].text;
  const goesOn = event.index + 1 < run.events.length;
  const last = STOP_WORDS.has(word) ? "end stop" : event.emitted === 1 ? "end only" : "end last";
  return say(name, { word: { token: word }, end: say(goesOn ? "end" : last) });
}

function sayPrefill(frame: Frame) {
  const { event, record, run } = frame;
  const one = record.prompt === 1 ? " one" : "";
  return inOne(
    say(readsShared(frame) ? "prefill shared" : `prefill${one}`, {
      ...event.counts,
      prompt: record.prompt,
      where: whereOf(frame),
    }),
    comesOut(frame, `first${one}`),
    run.keeps ? [] : say("not kept"),
  );
}

function sayDecode(frame: Frame) {
  const { event, record, other } = frame;
  const { counts, part } = event;
  if (part.repeated.length) {
    return inOne(sayAgain(frame), comesOut(frame, other ? "out same" : "out"));
  }
  const others = other?.counts.pairs ?? 0;
  const cost = say(others > counts.pairs ? "cost instead" : "cost", { pairs: counts.pairs, others });
  const token = { token: record.tokens[event.queries[0]].text };
  return inOne(
    say(readsShared(frame) ? "decode shared" : "decode", {
      token,
      entries: entriesRead(frame),
      where: whereOf(frame),
      seen: counts.pairs,
      cost,
    }),
    comesOut(frame, "out"),
  );
}

/** Where a pass leaves as many KV entries as the layer that is shown: each layer keeps its own. */
export const whereOf = ({ event, record }: Frame) =>
  VIEW.labels.where[record.model.n_layers < 2 ? 0 : event.raw.others?.length ? 2 : 1];

/** Whether the layer makes no K and V, and reads those of an earlier layer. */
const readsShared = ({ event, state }: Frame) => !state && event.counts.kv_rows === 0;

function entriesRead({ event, record }: Frame) {
  const byPrefill = event.counts.rows_read === record.prompt;
  return say(byPrefill ? "entries of prefill" : "entries so far", event.counts);
}

/** Pairs of this pass that were scored before, and how often at most. */
function sayAgain(frame: Frame) {
  const { event, run } = frame;
  const again = event.queries.flatMap((query) => {
    const { states, counts } = rowCells(run, event.index, query, 0, query + 1);
    return [...counts].filter((_, j) => states[j] === AGAIN);
  });
  const times = again.reduce((most, n) => Math.max(most, n), 1) - 1; // too many for arguments of a call
  const often = times === 1 ? "second time" : times === 2 ? "up to twice" : "up to";
  return say("again", {
    ...event.counts,
    where: whereOf(frame),
    times: say(often, { repeated: again.length, times }),
  });
}

/** What a pass does in a layer that keeps a state instead of KV entries, or nothing. */
function sayState(frame: Frame): Parts {
  const { event, record, state } = frame;
  const [query] = event.queries;
  const kind = !state?.length ? "nothing" : event.queries.length > 1 ? "many" : "one";
  const what = fill(VIEW.state[kind], { ...event.counts, token: { token: record.tokens[query].text } });
  return event.part.out.length ? inOne(what, comesOut(frame, "out")) : what;
}

/** What a layer keeps instead of KV entries, in words: how many numbers of what. */
export function stateText({ state }: Frame) {
  const shapes = (state ?? []).map(([name, shape]) =>
    fillText(VIEW.state.shape, { name, shape: (shape as number[]).slice(1).join(" × ") }),
  );
  return shapes.length ? fillText(VIEW.state.holds, { shapes: shapes.join(", ") }) : VIEW.state.empty;
}

/** The name of what keeps KV entries or a state, with the type of layer where there are several. */
export function drawerName({ run, event, state, record, layer }: Frame) {
  const keeps = run.keeps && event.phase !== "training";
  const name = state ? VIEW.drawer.state : VIEW.drawer[keeps ? "keeps" : run.keeps ? "training" : "drops"];
  const type = (keeps || state) && record.model.layer_types?.[layer];
  return type ? `${name} · ${type}` : name;
}

/** One sentence or three on what this pass does and what it costs. */
export function sentenceOf(frame: Frame): Parts {
  const { counts, phase } = frame.event;
  if (frame.state) return sayState(frame);
  if (phase === "training") {
    const processed = fillText(VIEW.processed[Number(counts.positions > 1)], counts);
    return say("training", { ...counts, processed });
  }
  return phase === "prefill" ? sayPrefill(frame) : sayDecode(frame);
}

/** A sentence as one plain string, for reading aloud and for tests. */
export function plainSentence(parts: Parts, most = 24) {
  return parts.map((part) => (typeof part === "string" ? part : clippedText(part.token, most))).join("");
}

/** What would be otherwise if no mask hid what stands to the right; nothing while it does. */
export function aheadSentence({ ahead, event, run, columns }: Frame) {
  if (!ahead) return "";
  const rows = event.queries.map(
    (query) => rowCells(run, event.index, query, 0, columns.length, true).states,
  );
  const pairs = rows.reduce((sum, states) => sum + states.filter((state) => state === AHEAD).length, 0);
  const kind = !pairs ? "nothing" : event.phase === "training" ? "training" : "later";
  return fillText(VIEW.ahead[kind], { pairs }) + (pairs ? VIEW.ahead.squares : "");
}

/** The ledger, as an equation only where the counted numbers satisfy it, else why not. */
export function ledgerOf(frame: Frame) {
  const { event, record, run, work } = frame;
  const { emitted } = event;
  const right = record.prompt + emitted - 1;
  const values = { cached: work.stored, prompt: record.prompt, emitted, right };
  let kind: keyof typeof VIEW.ledger = work.stored === right ? "holds" : frame.state ? "state" : "not";
  if (readsShared(frame)) kind = "shared";
  if (!run.keeps) kind = "none";
  if (event.phase === "training") kind = "training";
  return { holds: kind === "holds", text: fillText(VIEW.ledger[kind], values) };
}

/** What happens to KV entries in this pass. */
export function entriesNote(frame: Frame) {
  const { event, run, state } = frame;
  if (state) return VIEW.notes[state.length ? "state" : "nothing"];
  const { kv_rows: made, rows_read: read, positions } = event.counts;
  if (readsShared(frame)) return fillText(VIEW.notes.shared, { seen: read + positions });
  const [written, again] = [event.part.written, event.part.repeated].map(sizeOf);
  const kept = run.keeps && event.phase !== "training";
  const kind = kept ? (read ? "read" : "written") : again ? "again" : "made";
  return fillText(VIEW.notes[kind], { made, read, written, again });
}

/** Whose work a row is that does not run: "prefill's, untouched". */
export function untouched(pass: string) {
  return fillText(VIEW.labels.untouched, { pass: pass.toLowerCase() });
}

/** The sum behind one context: its terms, or words where they are many; null where V has no single numbers. */
export function sumOf({ weights, columns, values, context }: Line) {
  if (!weights || !values || context === null) return null;
  const picked = columns.map((column, k) => ({ column, w: weights[k], v: values[k] }));
  const terms = picked.filter(({ w }) => isPicked(w, weights.length));
  if (!terms.length) return VIEW.sums.none;
  if (terms.length < VIEW.many_terms)
    return terms.map(({ column, w, v }) => ({ column, text: `${formatNumber(w)} × ${formatNumber(v)}` }));
  const even = terms.every(({ w }) => Math.abs(w - 1 / terms.length) < VIEW.even);
  return fillText(VIEW.sums[even ? "even" : "many"], { terms: terms.length });
}

/** The next word comes out of the last layer: said where another is shown, whose contexts go there first. */
export function throughLayers({ record, layer }: Frame) {
  const last = record.model.n_layers;
  return layer + 1 < last ? `, after layer ${last}` : "";
}

/** What the numbers of a K row mean. */
export const keyNames = (model: string): string[] => (VIEW.keys as Record<string, string[]>)[model] ?? [];

/** One row of K, number by number; of more than two, none. */
export const keyTexts = (k: number[] | null) => (k && k.length <= 2 ? k.map(formatNumber) : []);

const WORD = 24; // characters of a token's text in the pass in words
const ROWS_SPELLED_OUT = 12;
const RANGE_SPELLED_OUT = 8; // tokens; of more, the first and the last

/** A token and its place in the text. */
function nameToken({ tokens }: TraceRecord, index: number) {
  return `${isolatedText(tokens[index].text, WORD)} (${index + 1})`;
}

function nameRanges(record: TraceRecord, ranges: Ranges) {
  const names = (indices: number[]) => indices.map((i) => nameToken(record, i));
  const said = ranges.map(([start, stop]) =>
    stop - start <= RANGE_SPELLED_OUT
      ? names(spread([[start, stop]])).join(", ")
      : names([start, stop - 1]).join(" to "),
  );
  return said.join(", ") || "nothing";
}

function describeRow({ run, event, record, ahead }: Frame, query: number) {
  const { states } = rowCells(run, event.index, query, 0, record.columns, ahead);
  const where = (...wanted: number[]) => gather([...states.keys()].filter((j) => wanted.includes(states[j])));
  const also = (words: string, ranges: Ranges) =>
    ranges.length ? `; ${words}: ${nameRanges(record, ranges)}` : "";
  const again = sizeOf(where(AGAIN));
  const looks = `${nameToken(record, query)} attends to ${nameRanges(record, where(NOW, AGAIN))}`;
  const before = again ? `, ${again} of them scored before` : "";
  return `${looks}${before}${also("masked", where(MASKED))}${also(VIEW.described.ahead, where(AHEAD))}.`;
}

/** The weights of the chosen line: those of the head in the grid, and of each head that has a line of its own. */
function describeWeights({ record, run, event, layer, ...frame }: Frame, row: number) {
  const heads = new Set([frame.head, ...frame.weights.map((line) => line.head)]);
  return [...heads].map((head) => {
    const { columns, weights } = weightsIn(record, run, event, row, layer, head);
    const said = { row: nameToken(record, row), layer: layer + 1, head: headName(record, head) };
    const spelled = weights ? spellWeights(record, columns, weights) : VIEW.described["not recorded"];
    return fillText(VIEW.described.weights, { ...said, weights: spelled });
  });
}

/** The greatest weights, a dozen at most, in the order of their tokens. */
function spellWeights(record: TraceRecord, columns: number[], weights: Float64Array) {
  const picked = [...columns.keys()].filter((k) => isPicked(weights[k], columns.length));
  const least = picked.map((k) => weights[k]).sort((a, b) => b - a)[ROWS_SPELLED_OUT - 1] ?? 0;
  const told = picked.filter((k) => weights[k] >= least);
  const words = told.map((k) => `${nameToken(record, columns[k])} ${formatNumber(weights[k])}`);
  const others = columns.length - told.length;
  return [...words, ...(others ? [fillText(VIEW.described.others, { others })] : [])].join(", ");
}

/** Contexts, targets, the next word and, in the lab, the ledger: what stands beside the grid. */
function describeBeside(frame: Frame, lab: boolean) {
  const { record, out, row } = frame;
  const lines = describeWeights(frame, row);
  const contexts = frame.contexts.get(row);
  if (contexts) {
    const numbers = contexts.map((c, h) => `${frame.heads[h].name} ${formatNumber(c)}`);
    lines.push(`Contexts of ${nameToken(record, row)}: ${numbers.join(", ")}.`);
  }
  if (frame.targets.size) {
    const words = [...frame.targets.values()].map((word) => isolatedText(word, WORD));
    const rest = words.length > ROWS_SPELLED_OUT ? ", …" : "";
    lines.push(`Targets, row by row: ${words.slice(0, ROWS_SPELLED_OUT).join(", ")}${rest}.`);
  }
  if (out) {
    const words = out.top.map(({ word, p }) => `${isolatedText(word, WORD)} ${formatPercent(p)}`);
    lines.push(`Next word (${out.how}): ${words.join(", ")}. Chosen: ${isolatedText(out.chosen, WORD)}.`);
  }
  if (lab) lines.push(`Ledger: ${ledgerOf(frame).text}.`);
  return lines;
}

/** The pass in words, for readers who do not see it: grid, cache and what stands beside them. */
export function describe(frame: Frame, lab: boolean) {
  const { event, record, run, columns } = frame;
  const cache = event.phase === "training" ? "" : `, cache ${run.keeps ? "on" : "off"}`;
  const lines = [`${event.name}${cache}. ${VIEW.described.places}`];
  let told = event.queries;
  if (told.length > ROWS_SPELLED_OUT) {
    lines.push(`${told.length} rows are scored; each ${VIEW.described.looks}. The first and the last:`);
    told = [told[0], told[told.length - 1]];
  }
  if (frame.state) lines.push(`${drawerName(frame)}: ${stateText(frame)}.`);
  else lines.push(...told.map((query) => describeRow(frame, query)));
  const list = (words: string, wanted: (column: Frame["columns"][number]) => unknown) => {
    const ranges = gather(columns.filter(wanted).map((column) => column.index));
    if (ranges.length) lines.push(`${words}: ${nameRanges(record, ranges)}.`);
  };
  if (event.counted) list("Not run in this pass", (c) => !c.live && lastPassOf(run, event.index, c.index));
  for (const [state, word] of Object.entries({ ...VIEW.entries, made: "made, used and dropped" }))
    list(`KV entries ${word}`, (c) => c.entry === state);
  return [...lines, ...describeBeside(frame, lab)];
}
