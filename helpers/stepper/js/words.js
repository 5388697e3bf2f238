// What a pass says: sentences, notes, the ledger, the pass in words. The sentences stand in view.json. A sentence
// is a list of plain strings and of {token: text} for words that tokens say.
import VIEW from "../view.json" with { type: "json" };
import { clippedText, fill, fillText, formatNumber, formatPercent, isolatedText } from "./format.js";
import { AGAIN, isPicked, lastPassOf, MASKED, NOW, rowCells, tokenState, weightsIn } from "./frame.js";
import { gather, headName, sizeOf, spread } from "./trace.js";

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
  const { out } = frame.event.part;
  const word = frame.record.tokens[out.at(-1).chosen].text;
  const values = { words: out.length, word: { token: word }, end: say(endOf(frame, word)) };
  return say(out.length > 1 ? "out many" : name, values);
}

function endOf(frame, word) {
  if (frame.run.events.slice(frame.event.index + 1).some((e) => e.queries.length)) return "end";
  if (STOP_WORDS.has(word)) return "end stop";
  return frame.event.emitted === 1 ? "end only" : "end last";
}

function sayTraining({ event: { counts } }) {
  return say(counts.positions === 1 ? "training one" : "training", counts);
}

function sayPrefill(frame) {
  const { event, record, run } = frame;
  const { counts } = event;
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
  const drafts = fresh.filter((i) => record.tokens[i].origin === "draft");
  const word = (name) =>
    inOne(
      drafts.length ? sayFates(frame, drafts) : [],
      event.part.out.length ? comesOut(frame, name) : say("no word"),
    );
  if (event.part.repeated.length)
    return inOne(sayAgain(frame, fresh.length), word(sameWord(frame) ? "out same" : "out"));
  const rows = rowsRead(frame);
  const reads = event.counts.rows_read ? say("decode reads", { rows }) : "";
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

function sayFates({ record, run, event }, drafts) {
  const accepted = drafts.filter((i) => tokenState(record, run, event, i).fate === "accepted").length;
  return say("fates", { accepted, drafts: drafts.length });
}

function costOf({ event, other }) {
  const { pairs } = event.counts;
  const others = other?.counts?.pairs ?? 0;
  return say(others > pairs ? "cost instead" : "cost", { pairs, others });
}

function rowsRead({ event, run }) {
  const byPrefill = run.events.filter((e) => e.phase === "prefill").flatMap((e) => e.part?.written ?? []);
  const same = JSON.stringify(spread(byPrefill)) === JSON.stringify(spread(event.part.read));
  return say(same ? "rows of prefill" : "rows so far", event.counts);
}

function sayAgain(frame, fresh) {
  const { repeated, most } = againOf(frame);
  const often = most === 2 ? "second time" : most === 3 ? "up to twice" : "up to";
  return say(frame.run.keeps ? "again" : "again without", {
    ...frame.event.counts,
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

/** One sentence or three on what this pass does and what it costs; of several sequences, what this one does. */
export function sentenceOf(frame) {
  const { raw } = frame.event;
  const elsewhere =
    raw.op === "pass" ? !frame.event.part : (raw.sequence ?? frame.record.sequence) !== frame.record.sequence;
  if (elsewhere) return say("elsewhere");
  if (raw.op !== "pass") return [raw.say ?? `${frame.event.name}.`];
  const sequences = raw.parts.length;
  const together = say("together", { ...raw.counts, sequences, sequence: frame.record.sequence + 1 });
  return inOne(sequences > 1 ? together : [], sayPass(frame));
}

function sayPass(frame) {
  const { event } = frame;
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
  if (event.gone.length) return note("gone", { gone: sizeOf(event.gone), why: event.raw.why });
  if (!event.part) return note("kept", { kept: sizeOf(event.stored) });
  const { kv_rows: made, rows_read: read } = event.counts;
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

export function keyTexts(model, k) {
  if (k === null || k === undefined || k.length > 2) return [];
  const names = VIEW.keys[model] ?? [];
  return k.map((x, i) => (names[i]?.endsWith("?") ? (x ? "yes" : "no") : formatNumber(x)));
}

const WORD = 24; // characters of a token's text in the pass in words
const ROWS_SPELLED_OUT = 12;

function nameToken(record, index) {
  const { text, position } = record.tokens[index];
  return `${isolatedText(text, WORD)} (${position})`;
}

function nameRange(record, [start, stop]) {
  const names = stop - start <= 8 ? spread([[start, stop]]) : [start, stop - 1];
  return names.map((i) => nameToken(record, i)).join(stop - start <= 8 ? ", " : " to ");
}

function nameRanges(record, ranges) {
  return ranges.length ? ranges.map((range) => nameRange(record, range)).join(", ") : "nothing";
}

function describeRow(frame, query) {
  const { states } = rowCells(frame.run, frame.event.index, query, 0, frame.record.columns);
  const where = (...wanted) => gather([...states.keys()].filter((j) => wanted.includes(states[j])));
  const again = sizeOf(where(AGAIN));
  const masked = where(MASKED);
  const name = nameToken(frame.record, query);
  const looks = `${name} looks at ${nameRanges(frame.record, where(NOW, AGAIN))}`;
  const before = again ? `, ${again} of them scored before` : "";
  return `${looks}${before}${masked.length ? `; masked: ${nameRanges(frame.record, masked)}` : ""}.`;
}

/** The weights of the chosen line: those of the head in the grid, and of each head that has a line of its own. */
function describeWeights(frame) {
  const { record, run, event, row, layer } = frame;
  const heads = new Set([frame.head, ...frame.weights.map((line) => line.head)]);
  return [...heads].map((head) => {
    const { columns, weights } = weightsIn(record, run, event, row, layer, head);
    const said = { row: nameToken(record, row), layer: layer + 1, head: headName(record, head) };
    return fillText(VIEW.described.weights, { ...said, weights: spellWeights(record, columns, weights) });
  });
}

/** The greatest weights, a dozen at most, in the order of their tokens. */
function spellWeights(record, columns, weights) {
  if (!weights) return VIEW.described["not recorded"];
  const picked = [...columns.keys()].filter((k) => isPicked(weights[k], columns.length));
  const least = picked.map((k) => weights[k]).sort((a, b) => b - a)[ROWS_SPELLED_OUT - 1] ?? 0;
  const told = picked.filter((k) => weights[k] >= least);
  const words = told.map((k) => `${nameToken(record, columns[k])} ${formatNumber(weights[k])}`);
  const others = columns.length - told.length;
  return [...words, ...(others ? [fillText(VIEW.described.others, { others })] : [])].join(", ");
}

/** Contexts, targets, the next word and the ledger: what stands beside the grid. */
function describeBeside(frame, panels) {
  const { record, out } = frame;
  const lines = panels.has("weights") && frame.row !== null ? describeWeights(frame) : [];
  if (panels.has("contexts") && frame.contexts.has(frame.row)) {
    const numbers = frame.contexts.get(frame.row).map((c, h) => `${frame.heads[h].name} ${formatNumber(c)}`);
    lines.push(`Contexts of ${nameToken(record, frame.row)}: ${numbers.join(", ")}.`);
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
  const cache = event.phase === "training" ? "" : `, cache ${run.keeps ? "on" : "off"}`;
  const of = record.sequences > 1 ? `, sequence ${record.sequence + 1} of ${record.sequences}` : "";
  const lines = [`${event.name}${cache}${of}.`];
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
  for (const fate of ["accepted", "rejected"]) {
    const drafts = gather(columns.filter((c) => c.fate === fate).map((c) => c.index));
    if (drafts.length) lines.push(`Drafts ${fate}: ${nameRanges(record, drafts)}.`);
  }
  return [...lines, ...describeBeside(frame, panels)];
}
