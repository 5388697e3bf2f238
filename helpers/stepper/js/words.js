// The sentences. A sentence is a list of plain strings and of {token: text} for words that tokens say.
import { clippedText, formatCount, formatNumber, formatPercent, isolatedText } from "./format.js";
import { AGAIN, isPicked, lastPassOf, MASKED, NOW, rowCells, scoredAgain } from "./frame.js";
import { gather, sizeOf, spread } from "./trace.js";

const STOP_WORDS = new Set(["<eos>", "</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>"]);

function pairs(counts) {
  return formatCount(counts.pairs, "pair");
}

/** True if every query of the pass looks at itself and all tokens before it. */
function isCausal(event) {
  return event.queries.every((q) => {
    const ranges = event.visible.get(q);
    return ranges.length === 1 && ranges[0][0] === 0 && ranges[0][1] === q + 1;
  });
}

function lookingAt(event) {
  return isCausal(event) ? "looks at itself and what stands before it" : "looks at what its mask lets it see";
}

function comesOut(frame, lead) {
  const out = frame.event.part.out.at(-1);
  const word = frame.record.tokens[out.chosen].text;
  const end = frame.run.events.slice(frame.event.index + 1).some((e) => e.queries.length)
    ? "."
    : lastWord(frame, word);
  return [lead, { token: word }, end];
}

function lastWord(frame, word) {
  if (STOP_WORDS.has(word)) return ": stop.";
  return `, ${frame.event.emitted === 1 ? "the only one" : "the last"} that was asked for.`;
}

function sayTraining(frame) {
  const { counts } = frame.event.raw;
  const many = counts.positions;
  return [
    `Training, for reference. ${many === 1 ? "The one token runs" : `All ${many} tokens run together`}`,
    `, as in prefill: ${pairs(counts)}. `,
    "Every row has a target, the token that comes next. Nothing is kept.",
  ];
}

function sayPrefill(frame) {
  const { event, record, run } = frame;
  const { counts } = event.raw;
  const part = event.part;
  const many = sizeOf(part.new);
  const said = [];
  if (many === record.prompt && many === 1)
    said.push(
      `The one prompt token runs. It makes its row of K and V and looks at itself: ${pairs(counts)}. `,
    );
  else if (many === record.prompt)
    said.push(
      `All ${many} prompt tokens run through together. Each makes its own row of K and V, and `,
      `${lookingAt(event)}: ${pairs(counts)}. `,
    );
  else said.push(`${sayChunk(event, many, record.prompt)}: ${pairs(counts)}. `);
  if (!part.out.length) said.push("The prompt is not finished, so no word comes out yet.");
  else if (run.chosenAt.get(part.out[0].chosen) === event.index && event.emitted === part.out.length)
    said.push(
      ...comesOut(
        frame,
        many === 1 ? "It gives the first new word, " : "The last row gives the first new word, ",
      ),
    );
  if (!run.keeps) said.push(" K and V are dropped after the pass.");
  return said;
}

function sayChunk(event, many, prompt) {
  const read = event.raw.counts.rows_read;
  const from = event.part.new[0][0];
  const which =
    many === 1
      ? `Token ${from + 1} of the ${prompt} of the prompt runs`
      : `Tokens ${from + 1} to ${from + many} of the ${prompt} of the prompt run together`;
  const s = many === 1 ? "s" : "";
  const kept = read ? `, read${s} the ${formatCount(read, "row")} kept before` : "";
  return `${which}, add${s} ${formatCount(many, "row")} to K and V${kept}`;
}

function sayDecode(frame) {
  const { event, run, other } = frame;
  const { counts } = event.raw;
  const fresh = spread(event.part.new);
  const again = sizeOf(event.part.repeated);
  const end = (lead) => (event.part.out.length ? comesOut(frame, lead) : ["No word is taken from it."]);
  if (again)
    return [
      ...sayAgain(frame, fresh.length),
      ...end(sameWord(frame) ? "The word that comes out is the same, " : "The word that comes out is "),
    ];
  const dear =
    other && other.raw.counts && other.raw.counts.pairs > counts.pairs
      ? ` instead of ${other.raw.counts.pairs.toLocaleString("en")}`
      : "";
  const cost = `${pairs(counts)}${dear}. `;
  const end1 = end("The word that comes out is ");
  if (fresh.length !== 1)
    return [
      `${formatCount(fresh.length, "new token")} run together, add a row each to K and V `,
      `and read ${rowsRead(frame)}: ${cost}`,
      ...end1,
    ];
  const seen = sizeOf(event.visible.get(fresh[0]));
  return [
    "Only ",
    { token: frame.record.tokens[fresh[0]].text },
    ` runs. It ${run.keeps ? "adds" : "makes"} one row ${run.keeps ? "to" : "of"} K and V`,
    counts.rows_read ? `, reads ${rowsRead(frame)},` : "",
    ` and looks at ${formatCount(seen, "token")}: ${cost}`,
    ...end1,
  ];
}

function rowsRead(frame) {
  const { event, run } = frame;
  const byPrefill = run.events.filter((e) => e.phase === "prefill").flatMap((e) => e.part?.written ?? []);
  const same = JSON.stringify(spread(byPrefill)) === JSON.stringify(spread(event.part.read));
  return `the ${formatCount(event.raw.counts.rows_read, "row")} ${same ? "of the prefill" : "kept so far"}`;
}

function sayAgain(frame, fresh) {
  const { event } = frame;
  const { repeatedPairs, most } = againOf(frame);
  const lead = frame.run.keeps ? "" : "Without the cache ";
  const rows = fresh === 1 ? "one new row" : `${fresh} new rows`;
  const all = `all ${event.raw.counts.positions} tokens run to get the ${rows}`;
  const some = `${repeatedPairs.toLocaleString("en")} of them`;
  const often = most === 3 ? "twice" : `${most - 1} times`;
  const times = most === 2 ? `${some} for the second time` : `${some} scored before, up to ${often}`;
  return [`${lead}${lead ? all : capitalised(all)}: ${pairs(event.raw.counts)}, ${times}. `];
}

function capitalised(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Pairs of this pass that were scored before, and the largest count. */
export function againOf(frame) {
  let repeatedPairs = 0;
  let most = 0;
  for (const query of frame.event.queries) {
    const { pairs: again, most: times } = scoredAgain(frame.run, frame.event.index, query);
    repeatedPairs += again;
    most = Math.max(most, times);
  }
  return { repeatedPairs, most };
}

function sameWord(frame) {
  const mine = frame.event.part.out.at(-1);
  const theirs = frame.other?.part?.out.at(-1);
  return Boolean(theirs) && frame.record.tokens[theirs.chosen].text === frame.record.tokens[mine.chosen].text;
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
export function ledgerOf(frame) {
  const { event, record, run, work } = frame;
  const cached = work.stored;
  const said = `${record.prompt} prompt + ${event.emitted} emitted − 1`;
  if (event.phase === "training") return { holds: false, text: "nothing cached: training keeps no rows" };
  if (!run.keeps) return { holds: false, text: "0 cached: K and V are made, used and dropped" };
  if (event.emitted === 0)
    return { holds: false, text: `${cached} cached: the prompt is not finished, nothing is emitted` };
  const right = record.prompt + event.emitted - 1;
  if (cached === right && !event.dropped) return { holds: true, text: `${cached} cached = ${said}` };
  if (event.dropped)
    return {
      holds: false,
      text: `${cached} cached, not ${said}: ${formatCount(event.dropped, "row")} dropped`,
    };
  return { holds: false, text: `${cached} cached, not ${said} (${right})` };
}

/** What happens to rows of K and V in this pass. */
export function rowsNote(frame) {
  const { event, run } = frame;
  if (event.gone.length) return `${formatCount(sizeOf(event.gone), "row")} dropped`;
  if (!event.part) return `${formatCount(sizeOf(event.stored), "row")} kept`;
  const { kv_rows: made, rows_read: read } = event.raw.counts;
  const written = sizeOf(event.part.written);
  const again = sizeOf(event.part.repeated);
  if (!run.keeps || event.phase === "training")
    return again ? `${made} rows made, ${again} again` : `${formatCount(made, "row")} made, used, dropped`;
  const rest = sizeOf(event.stored) - read - written;
  return [
    read ? `${formatCount(read, "row")} read` : "",
    read ? `${written} written` : `${formatCount(written, "row")} written`,
    rest > 0 ? `${rest} at rest` : "",
  ]
    .filter(Boolean)
    .join(", ");
}

const MANY_TERMS = 3;

/** The sum behind one context: "0.5 × 20 + 0.5 × 5", "average of 5"; null where V has no single numbers. */
export function sumOf(line) {
  if (!line.weights || !line.values || line.context === null) return null;
  const terms = [];
  line.weights.forEach((w, k) => {
    if (isPicked(w, line.weights.length)) terms.push([w, line.values[k]]);
  });
  if (!terms.length) return "nothing to pick";
  if (terms.length === 1 && terms[0][0] > 0.995) return `1 × ${formatNumber(terms[0][1])}`;
  const even = terms.every(([w]) => Math.abs(w - 1 / terms.length) < 1e-4);
  if (terms.length >= MANY_TERMS)
    return even ? `average of ${terms.length}` : `sum of ${terms.length} products`;
  return terms.map(([w, v]) => `${formatNumber(w)} × ${formatNumber(v)}`).join(" + ");
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

const KEY_PARTS = { toy: ["even?", "position"] };

/** What the numbers of a K row mean, and one row as text. */
export function keyCaption(record) {
  return KEY_PARTS[record.model.name]?.join(" · ") ?? null;
}

export function keyTexts(record, k) {
  if (k === null || k === undefined || k.length > 2) return [];
  const names = KEY_PARTS[record.model.name] ?? [];
  return k.map((x, i) => (names[i]?.endsWith("?") ? (x ? "yes" : "no") : formatNumber(x)));
}

function nameRange(record, [start, stop]) {
  const name = (i) => `${isolatedText(clippedText(record.tokens[i].text))} (${record.tokens[i].position})`;
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

const ROWS_SPELLED_OUT = 12;

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
      .map((word) => isolatedText(clippedText(word)));
    const rest = frame.targets.size > words.length ? ", …" : "";
    lines.push(`Targets, row by row: ${words.join(", ")}${rest}.`);
  }
  if (panels.has("prediction") && out) {
    const words = out.top.map(({ word, p }) => `${isolatedText(clippedText(word))} ${formatPercent(p)}`);
    lines.push(
      `Next word (${out.how}): ${words.join(", ")}. Chosen: ${isolatedText(clippedText(out.chosen))}.`,
    );
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
  const kinds = {
    written: "written",
    read: "read",
    rest: "at rest",
    made: "made, used and dropped",
    dropped: "dropped",
  };
  for (const [state, word] of Object.entries(kinds)) {
    const ranges = inState(state);
    if (ranges.length) lines.push(`Rows of K and V ${word}: ${nameRanges(record, ranges)}.`);
  }
  if (event.counted && run.keeps && !columns.some((c) => c.row !== "empty"))
    lines.push("The cache is empty.");
  return [...lines, ...describeBeside(frame, panels)];
}
