// What a pass says: sentences, notes, the ledger, the pass in words. The sentences stand in view.json. A sentence
// is a list of plain strings and of {token: text} for words that tokens say.
import VIEW from "../view.json" with { type: "json" };
import { clippedText, fill, fillText, formatNumber, formatPercent, isolatedText } from "./format.js";
import { AGAIN, isPicked, lastPassOf, MASKED, NOW, rowCells } from "./frame.js";
import { gather, sizeOf, spread } from "./trace.js";

const STOP_WORDS = new Set(["<eos>", "</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>"]);

function say(name, values) {
  return fill(VIEW.sentences[name], values);
}

function inOne(...sentences) {
  return sentences.filter((parts) => parts.length).flatMap((parts, i) => (i ? [" ", ...parts] : parts));
}

/** True if every query of the pass looks at itself and all tokens before it. */
function isCausal(event) {
  return event.queries.every((q) => {
    const ranges = event.visible.get(q);
    return ranges.length === 1 && ranges[0][0] === 0 && ranges[0][1] === q + 1;
  });
}

function lookingAt(event) {
  return VIEW.sentences[isCausal(event) ? "looks" : "looks by mask"];
}

function comesOut(frame, name) {
  const word = frame.record.tokens[frame.event.part.out.at(-1).chosen].text;
  return say(name, { word: { token: word }, end: say(endOf(frame, word)) });
}

function endOf(frame, word) {
  if (frame.run.events.slice(frame.event.index + 1).some((e) => e.queries.length)) return "end";
  if (STOP_WORDS.has(word)) return "end stop";
  return frame.event.emitted === 1 ? "end only" : "end last";
}

function sayTraining({ event }) {
  const { counts } = event.raw;
  return say(counts.positions === 1 ? "training one" : "training", counts);
}

function sayPrefill(frame) {
  const { event, record, run } = frame;
  const { counts } = event.raw;
  const fresh = sizeOf(event.part.new);
  const [[from]] = event.part.new;
  const one = fresh === 1 ? " one" : "";
  const reads = counts.rows_read ? say(`chunk${one} reads`, counts) : "";
  const places = { first: from + 1, last: from + fresh, prompt: record.prompt };
  return inOne(
    say(`${fresh === record.prompt ? "prefill" : "chunk"}${one}`, {
      ...counts,
      ...places,
      fresh,
      reads,
      looks: lookingAt(event),
    }),
    sayFirstWord(frame, one),
    run.keeps ? [] : say("not kept"),
  );
}

function sayFirstWord(frame, one) {
  const { event, run } = frame;
  const { out } = event.part;
  if (!out.length) return say("unfinished");
  const isFirst = run.chosenAt.get(out[0].chosen) === event.index && event.emitted === out.length;
  return isFirst ? comesOut(frame, `first${one}`) : [];
}

function sayDecode(frame) {
  const { event, run, record } = frame;
  const fresh = spread(event.part.new);
  const word = (name) => (event.part.out.length ? comesOut(frame, name) : say("no word"));
  if (event.part.repeated.length)
    return inOne(sayAgain(frame, fresh.length), word(sameWord(frame) ? "out same" : "out"));
  const rows = rowsRead(frame);
  const reads = event.raw.counts.rows_read ? say("decode reads", { rows }) : "";
  if (fresh.length !== 1)
    return inOne(say("decode many", { fresh: fresh.length, rows, cost: costOf(frame) }), word("out"));
  return inOne(
    say(run.keeps ? "decode" : "decode without", {
      token: { token: record.tokens[fresh[0]].text },
      seen: sizeOf(event.visible.get(fresh[0])),
      reads,
      cost: costOf(frame),
    }),
    word("out"),
  );
}

function costOf({ event, other }) {
  const { pairs } = event.raw.counts;
  const others = other?.raw.counts.pairs ?? 0;
  return say(others > pairs ? "cost instead" : "cost", { pairs, others });
}

function rowsRead({ event, run }) {
  const byPrefill = run.events.filter((e) => e.phase === "prefill").flatMap((e) => e.part?.written ?? []);
  const same = JSON.stringify(spread(byPrefill)) === JSON.stringify(spread(event.part.read));
  return say(same ? "rows of prefill" : "rows so far", event.raw.counts);
}

function sayAgain(frame, fresh) {
  const { repeated, most } = againOf(frame);
  const often = most === 2 ? "second time" : most === 3 ? "up to twice" : "up to";
  return say(frame.run.keeps ? "again" : "again without", {
    ...frame.event.raw.counts,
    rows: say(fresh === 1 ? "new row" : "new rows", { fresh }),
    times: say(often, { repeated, times: most - 1 }),
  });
}

/** Pairs of this pass that were scored before, and the largest count. */
function againOf({ event, run }) {
  let [repeated, most] = [0, 0];
  for (const query of event.queries) {
    const { states, counts } = rowCells(run, event.index, query, 0, query + 1);
    for (let j = 0; j < states.length; j++)
      if (states[j] === AGAIN) {
        repeated += 1;
        most = Math.max(most, counts[j]);
      }
  }
  return { repeated, most };
}

function sameWord(frame) {
  const word = (event) => frame.record.tokens[event?.part?.out.at(-1)?.chosen]?.text;
  return word(frame.event) === word(frame.other);
}

/** One sentence or three on what this pass does and what it costs. */
export function sentenceOf(frame) {
  const { event } = frame;
  if (event.op !== "pass" || !event.part) return [event.raw.say ?? `${event.name}.`];
  if (event.phase === "training") return sayTraining(frame);
  if (event.phase === "prefill") return sayPrefill(frame);
  return sayDecode(frame);
}

/** A sentence as one plain string, for reading aloud and for tests. */
export function plainSentence(parts, most = 24) {
  return parts.map((part) => (typeof part === "string" ? part : clippedText(part.token, most))).join("");
}

/** The ledger, as an equation only where the counted numbers satisfy it, else why not. */
export function ledgerOf({ event, record, run, work }) {
  const { emitted, dropped } = event;
  const values = {
    cached: work.stored,
    prompt: record.prompt,
    emitted,
    dropped,
    right: record.prompt + emitted - 1,
  };
  let kind = values.cached === values.right ? "holds" : "not";
  if (dropped) kind = "dropped";
  if (emitted === 0) kind = "unfinished";
  if (!run.keeps) kind = "none";
  if (event.phase === "training") kind = "training";
  return { holds: kind === "holds", text: fillText(VIEW.ledger[kind], values) };
}

/** What happens to rows of K and V in this pass. */
export function rowsNote({ event, run }) {
  const note = (name, values) => fillText(VIEW.notes[name], values);
  if (event.gone.length) return note("gone", { gone: sizeOf(event.gone) });
  if (!event.part) return note("kept", { kept: sizeOf(event.stored) });
  const { kv_rows: made, rows_read: read } = event.raw.counts;
  const [written, again] = [sizeOf(event.part.written), sizeOf(event.part.repeated)];
  if (!run.keeps || event.phase === "training") return note(again ? "again" : "made", { made, again });
  const rest = sizeOf(event.stored) - read - written;
  return note(read ? "read" : "written", { read, written }) + (rest > 0 ? note("rest", { rest }) : "");
}

/** The sum behind one context: its terms, or words where they are many; null where V has no single numbers. */
export function sumOf({ weights, columns, values, context }) {
  if (!weights || !values || context === null) return null;
  const terms = columns
    .map((column, k) => ({ column, w: weights[k], v: values[k] }))
    .filter(({ w }) => isPicked(w, weights.length));
  if (!terms.length) return VIEW.sums.none;
  if (terms.length < VIEW.many_terms)
    return terms.map(({ column, w, v }) => ({ column, text: `${formatNumber(w)} × ${formatNumber(v)}` }));
  const even = terms.every(({ w }) => Math.abs(w - 1 / terms.length) < VIEW.even);
  return fillText(VIEW.sums[even ? "even" : "many"], { terms: terms.length });
}

/** Lengths of a shape (batch, heads, rows, numbers); a batch of one and a single head are left out. */
function lengths(shape) {
  if (!shape) return null;
  const [batch, heads, ...rest] = shape;
  return [...(batch > 1 ? [batch] : []), ...(heads > 1 ? [heads] : []), ...rest].join(" × ");
}

/** Shapes of this layer, each for the thing it belongs to; null where the run had none. */
export function shapesOf(frame) {
  const shape = frame.shapes;
  const named = (label, text) => (text ? `${label} ${text}` : null);
  return {
    q: named("Q", lengths(shape?.q)),
    scores: named("scores", lengths(shape?.scores)),
    k: named("K", lengths(shape?.k)),
    v: named("V", lengths(shape?.v)),
  };
}

/** What the numbers of a K row mean, and one row as text. */
export function keyCaption(record) {
  return VIEW.keys[record.model.name]?.join(" · ") ?? null;
}

export function keyTexts(record, k) {
  if (k === null || k === undefined || k.length > 2) return [];
  const names = VIEW.keys[record.model.name] ?? [];
  return k.map((x, i) => (names[i]?.endsWith("?") ? (x ? "yes" : "no") : formatNumber(x)));
}

const WORD = 24; // characters of a token's text in the pass in words
const ROWS_SPELLED_OUT = 12;

function nameRange(record, [start, stop]) {
  const name = (i) => `${isolatedText(record.tokens[i].text, WORD)} (${record.tokens[i].position})`;
  if (stop - start <= 8)
    return spread([[start, stop]])
      .map(name)
      .join(", ");
  return `${name(start)} to ${name(stop - 1)}`;
}

function nameRanges(record, ranges) {
  return ranges.length ? ranges.map((range) => nameRange(record, range)).join(", ") : "nothing";
}

function describeRow(frame, query) {
  const { states } = rowCells(frame.run, frame.event.index, query, 0, frame.record.columns);
  const where = (...wanted) => gather([...states.keys()].filter((j) => wanted.includes(states[j])));
  const again = sizeOf(where(AGAIN));
  const masked = where(MASKED);
  const name = nameRange(frame.record, [query, query + 1]);
  const looks = `${name} looks at ${nameRanges(frame.record, where(NOW, AGAIN))}`;
  const before = again ? `, ${again} of them scored before` : "";
  return `${looks}${before}${masked.length ? `; masked: ${nameRanges(frame.record, masked)}` : ""}.`;
}

/** Contexts, targets, the next word and the ledger: what stands beside the grid. */
function describeBeside(frame, panels) {
  const { record, out } = frame;
  const lines = [];
  if (panels.has("contexts") && frame.contexts.has(frame.row)) {
    const numbers = frame.contexts.get(frame.row).map((c, h) => `${frame.heads[h].name} ${formatNumber(c)}`);
    lines.push(`Contexts of ${nameRange(record, [frame.row, frame.row + 1])}: ${numbers.join(", ")}.`);
  }
  if (panels.has("targets") && frame.targets.size) {
    const words = [...frame.targets.values()]
      .slice(0, ROWS_SPELLED_OUT)
      .map((word) => isolatedText(word, WORD));
    const rest = frame.targets.size > words.length ? ", …" : "";
    lines.push(`Targets, row by row: ${words.join(", ")}${rest}.`);
  }
  if (panels.has("prediction") && out) {
    const words = out.top.map(({ word, p }) => `${isolatedText(word, WORD)} ${formatPercent(p)}`);
    lines.push(`Next word (${out.how}): ${words.join(", ")}. Chosen: ${isolatedText(out.chosen, WORD)}.`);
  }
  if (panels.has("ledger")) lines.push(`Ledger: ${ledgerOf(frame).text}.`);
  return lines;
}

/** The pass in words, for readers who do not see it: grid, cache and what stands beside them. */
export function describe(frame, panels = new Set()) {
  const { event, record, run, columns } = frame;
  const lines = [`${event.name}${event.phase === "training" ? "" : `, cache ${run.keeps ? "on" : "off"}`}.`];
  const live = event.queries;
  if (live.length <= ROWS_SPELLED_OUT) live.forEach((query) => lines.push(describeRow(frame, query)));
  else {
    lines.push(`${live.length} rows are scored; each ${lookingAt(event)}. The first and the last:`);
    lines.push(describeRow(frame, live[0]), describeRow(frame, live.at(-1)));
  }
  const old = gather(
    columns.filter((c) => !c.live && lastPassOf(run, event.index, c.index)).map((c) => c.index),
  );
  if (old.length && event.counted) lines.push(`Not run in this pass: ${nameRanges(record, old)}.`);
  const inState = (state) => gather(columns.filter((c) => c.row === state).map((c) => c.index));
  for (const [state, word] of Object.entries({ ...VIEW.rows, made: "made, used and dropped" })) {
    const ranges = inState(state);
    if (ranges.length) lines.push(`Rows of K and V ${word}: ${nameRanges(record, ranges)}.`);
  }
  if (event.counted && run.keeps && !columns.some((c) => c.row !== "empty"))
    lines.push("The cache is empty.");
  return [...lines, ...describeBeside(frame, panels)];
}
