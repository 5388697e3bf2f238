// What tests in a browser are held to (shown.mjs) is held here, at every event, layer, head and line of
// every trace: the grid, KV entries and tokens against tests/expected.py, all else against the JSON of the trace itself.
import assert from "node:assert/strict";
import { test } from "node:test";
import { formatNumber, formatPercent } from "../../helpers/stepper/js/format.ts";
import { decodeWeights, readTrace } from "../../helpers/stepper/js/trace.ts";
import { shownAt } from "./shown.mjs";
import { load } from "./traces.mjs";

const LISTED = 12; // weights, and rows, that are told one by one
const spread = (ranges) => ranges.flatMap(([a, b]) => Array.from({ length: b - a }, (_, i) => a + i));
const near = (a, b) => Math.abs(a - b) < 1e-6 * Math.max(1, Math.abs(a));
const plain = (text) => text.replaceAll(/[\u2068\u2069]/g, "");

/** Places, in a line of words, behind the names of tokens: "so (4), nice (5)". */
const placesIn = (text) => [...text.matchAll(/ \((\d+)\)/g)].map((found) => Number(found[1]));

/** Indices, of stretches longer than 8 only the first and the last, as places in the text. */
function told(indices) {
  const starts = indices.filter((i) => !indices.includes(i - 1));
  const stretches = starts.map((start) => {
    const length = indices.slice(indices.indexOf(start)).findIndex((i, k) => i !== start + k);
    return indices.slice(indices.indexOf(start)).slice(0, length < 0 ? undefined : length);
  });
  const ends = stretches.flatMap((one) => (one.length <= 8 ? one : [one[0], one.at(-1)]));
  return ends.map((i) => i + 1);
}

/** What a run has done up to an event, parts of passes that count, outs. */
function before(run, event) {
  const passes = run.passes.slice(0, event + 1).filter((one) => one.phase !== "training");
  const parts = passes.flatMap((pass) => pass.parts);
  return { passes, parts, outs: parts.flatMap((part) => part.out) };
}

/** A grid of all columns, with the marks that are expected, and rows of later passes as they are to be. */
function withThoseToCome(marks, run, event, size) {
  const grid = Array.from({ length: size }, (_, i) =>
    Array.from({ length: size }, (_, j) => marks[i]?.[j] ?? ""),
  );
  const ran = new Set(run.passes.slice(0, event + 1).flatMap(queriesOf));
  for (const later of run.passes.slice(event + 1))
    queriesOf(later).forEach((query, k) => {
      const [part] = later.parts;
      if (!ran.has(query)) for (const j of spread(part.visible[k])) grid[query][j] ||= "-";
      ran.add(query);
    });
  return grid;
}

function queriesOf(event) {
  const [part] = event.parts;
  return spread([...part.repeated, ...part.new]).sort((a, b) => a - b);
}

function checkWords(shown, want, view, tokens) {
  const lines = view.words.map(plain);
  const entries = (state) =>
    want.entries.flatMap((one, i) => (one === state && i < shown.columns ? [i] : []));
  const words = { written: "written", read: "read", made: "made, used and dropped", evicted: "evicted" };
  for (const [state, word] of Object.entries(words)) {
    const line = lines.find((one) => one.startsWith(`KV entries ${word}: `));
    assert.deepEqual(line ? placesIn(line) : [], told(entries(state)), state);
  }
  const looks = lines.filter((one) => one.includes(" attends to ") && !one.includes("rows are scored"));
  const seen = shown.marks.some((line) => line.some(Boolean)) ? shown.live : []; // a layer that attends to nothing
  const live = seen.length > LISTED ? [seen[0], seen.at(-1)] : seen;
  assert.equal(looks.length, live.length);
  looks.forEach((line, k) => {
    const marks = shown.marks[live[k]];
    const [seen, masked] = [(mark) => mark && mark !== "×", (mark) => mark === "×"].map((wanted) =>
      told([...marks.keys()].filter((j) => wanted(marks[j]))),
    );
    const [name, what] = line.split(" attends to ");
    assert.deepEqual(placesIn(` ${name}`), [live[k] + 1]);
    assert.deepEqual(placesIn(what.split("; masked: ")[0]), seen);
    assert.deepEqual(placesIn(what.split("; masked: ")[1] ?? ""), masked);
    const again = marks.filter((mark) => /^\d/.test(mark)).length;
    assert.equal(line.match(/, (\d+) of them scored before/)?.[1] ?? "0", String(again));
  });
  const idle = lines.find((one) => one.startsWith("Not run in this pass: "));
  const untouched = shown.pass !== "Training" ? Object.keys(want.untouched).map(Number) : [];
  assert.deepEqual(idle ? placesIn(idle) : [], told(untouched));
  const contexts = view.lines.flatMap(({ head, name }, k) =>
    head === null ? [] : [`${name} ${view.contexts[view.row]?.[k]}`],
  );
  const beside = lines.find((one) => one.startsWith("Contexts of "));
  assert.equal(beside !== undefined, view.row in view.contexts);
  if (beside) assert.ok(beside.endsWith(` (${view.row + 1}): ${contexts.join(", ")}.`), beside);
  assert.equal(lines.at(-1), `Ledger: ${shown.ledger}.`);
}

/** Weights of the chosen line, in words: the greatest, in the order of their tokens. */
function checkWeightsInWords(view, weightsOf, names, tokens) {
  const lines = view.words.map(plain).filter((one) => one.startsWith("Attention weights of "));
  const heads = [...new Set([view.head, ...view.lines.map((line) => line.head)])];
  assert.equal(lines.length, view.row === null ? 0 : heads.length);
  lines.forEach((line, k) => {
    const weights = weightsOf(view.row, heads[k]);
    const name = heads[k] === null ? "mean" : names.get(heads[k]);
    assert.match(line, new RegExp(` \\(${view.row + 1}\\) in layer \\d+, ${name}: `));
    const said = line.slice(line.indexOf(`, ${name}: `) + name.length + 4);
    if (!weights) return assert.equal(said, "not recorded.");
    const picked = weights.filter(([, w]) => w * weights.length >= 0.05);
    const most = picked.filter(([, w]) => picked.filter(([, other]) => other > w).length < LISTED);
    assert.deepEqual(
      placesIn(said),
      most.map(([j]) => j + 1),
    );
    for (const [j, w] of most) assert.ok(said.includes(` (${j + 1}) ${formatNumber(w)}`), said);
    const others = weights.length - most.length;
    assert.equal(said.match(/less on (\d+) other/)?.[1] ?? "0", String(others));
  });
}

function checkSentence(shown, raw, part, same, tokens) {
  const { sentence } = shown;
  const pairs = spread(part.visible.flat()).length;
  if (raw.counts.products)
    assert.ok(sentence.includes(`${pairs.toLocaleString("en")} ${pairs === 1 ? "pair" : "pairs"}`), sentence);
  const words = part.out.map((out) => tokens[out.chosen].text);
  if (words.length) assert.ok(sentence.includes(words.at(-1)));
  const others = same?.parts[0].visible;
  const most = others ? spread(others.flat()).length : 0;
  const instead = raw.counts.products > 0 && raw.phase === "decode" && most > pairs;
  assert.equal(sentence.includes(` instead of ${most.toLocaleString("en")}.`), instead, sentence);
  assert.equal(/ instead of /.test(sentence), instead, sentence);
}

function checkWork(shown, data, run, event, done, part, same) {
  const raw = run.passes[event];
  const [plainRun] = data.runs.filter((one) => one.cache === "none");
  for (const { name, done: counted, total, avoided } of shown.work.bars) {
    assert.equal(counted, raw.counts[name]);
    assert.equal(total, same?.counts[name] ?? null);
    assert.equal(avoided, same ? same.counts[name] - raw.counts[name] : 0);
  }
  const positions = (passes) => passes.reduce((sum, pass) => sum + pass.counts.positions, 0);
  assert.equal(shown.work.soFar, positions(done.passes));
  const reached = run.cache !== "none" ? twin(run, plainRun, raw) : null;
  const others = reached && plainRun.passes.slice(0, plainRun.passes.indexOf(reached) + 1);
  const without = others?.filter((one) => one.phase !== "training");
  assert.equal(shown.work.soFarWithout, without ? positions(without) : null);
  const written = done.parts.reduce((sum, one) => sum + spread(one.written).length, 0);
  assert.equal(shown.work.stored, part.kept[1]);
  assert.ok(raw.phase === "training" || raw.others.length || part.kept[1] === written);
}

/** The same pass of another run: of its phase as many have gone before. */
function twin(run, other, pass) {
  const like = (one) => one.phase === pass.phase;
  return other?.passes.filter(like)[run.passes.filter(like).indexOf(pass)] ?? null;
}

function checkLedger(shown, run, event, done, prompt) {
  const cached = shown.work.stored;
  const emitted = done.outs.length;
  const sum = `${prompt} prompt + ${emitted} emitted − 1`;
  const right = prompt + emitted - 1;
  let said = cached === right ? `${cached} cached = ${sum}` : `${cached} cached, not ${sum} (${right})`;
  if (!run.passes[event].counts.kv_rows)
    said = "no KV entries of its own: those of an earlier layer are read";
  if (!run.passes[event].counts.products) said = "no KV entries in this layer, however long the text";
  if (run.cache === "none") said = "0 cached: K and V are made, used and dropped";
  if (run.passes[event].phase === "training")
    said = "nothing cached: training keeps nothing for a later pass";
  assert.equal(shown.ledger, said);
}

function checkView(view, shown, want, weightsOf, values, contextOf, part, tokens) {
  const names = new Map(shown.heads.map((head, k) => [head, shown.names[k]]));
  const lines = shown.heads.length <= 4 ? shown.heads : [view.head];
  assert.deepEqual(
    view.lines.map((line) => line.head),
    lines,
  );
  for (const line of view.lines) {
    assert.equal(line.name, line.head === null ? "mean" : names.get(line.head));
    const weights = view.row === null ? null : weightsOf(view.row, line.head);
    assert.equal(line.weights === null, weights === null);
    weights?.forEach(([j, w], k) => assert.ok(line.weights[k][0] === j && near(line.weights[k][1], w)));
    const context = view.row === null || line.head === null ? null : contextOf(view.row, line.head);
    if (!weights || context === null || !values) return assert.equal(line.sum, null);
    const terms = weights.filter(([, w]) => w * weights.length >= 0.05);
    const even = terms.every(([, w]) => Math.abs(w - 1 / terms.length) < 1e-4);
    const few = terms.map(([j, w]) => `${formatNumber(w)} × ${formatNumber(values[j][0])}`).join(" + ");
    const many = even ? `average of ${terms.length}` : `sum of ${terms.length} products`;
    const sum = terms.length > 2 ? many : few || "nothing to pick";
    assert.equal(line.sum, `${sum} = ${formatNumber(context)}`);
  }
  for (const row of shown.lookedInto) {
    const weights = weightsOf(row, view.head);
    const shares = Object.entries(view.shares).filter(([key]) => key.startsWith(`${row}.`));
    assert.equal(shares.length, weights?.length ?? 0);
    for (const [j, w] of weights ?? [])
      assert.ok(near(view.shares[`${row}.${j}`], w * weights.length >= 0.05 ? w : 0), `${row}.${j}`);
  }
  const mine = (view.row === null ? null : weightsOf(view.row, view.head)) ?? [];
  const picked = mine.filter(([, w]) => w > 0 && w * mine.length >= 0.05);
  const most = Math.max(...mine.map(([, w]) => w));
  assert.deepEqual(
    Object.keys(view.shades),
    picked.map(([j]) => String(j)),
  );
  for (const [j, w] of picked) assert.ok(Math.abs(view.shades[j] - (100 * w) / most) <= 0.5 + 1e-6);
  const out = part.out[0] ?? null;
  assert.equal(view.out === null, out === null);
  if (!out) return;
  assert.deepEqual([view.out.query, view.out.how], [out.query, out.how]);
  const chosen = tokens[out.chosen].text;
  const top = out.top.slice(0, 8);
  if (!top.some(([word]) => word === chosen))
    top.splice(
      7,
      1,
      out.top.find(([word]) => word === chosen),
    );
  assert.deepEqual(
    view.out.top.map(({ word, logit, p }) => [word, logit, p]),
    top,
  );
  assert.deepEqual(
    view.out.top.filter((one) => one.chosen).map((one) => one.word),
    [chosen],
  );
  const said = out.top.map(([word, , p]) => `${word} ${formatPercent(p)}`).join(", ");
  assert.ok(view.words.map(plain).includes(`Next word (${out.how}): ${said}. Chosen: ${chosen}.`));
}

/** A trace as one layer has it. */
function inLayer(data, layer) {
  const passIn = (pass) => {
    const other = pass.others.find((one) => one.layers.includes(layer));
    return other ? { ...pass, counts: other.counts, parts: [{ ...pass.parts[0], ...other }] } : pass;
  };
  return { ...data, runs: data.runs.map((run) => ({ ...run, passes: run.passes.map(passIn) })) };
}

for (const [name, looks] of Object.entries(load("expected")))
  test(`every look at ${name}`, () => {
    const whole = load(name);
    const record = readTrace(whole);
    for (const [[runName, event, layer], want] of looks) {
      const data = inLayer(whole, layer);
      const run = data.runs.find((one) => one.name === runName);
      const raw = run.passes[event];
      const [part] = raw.parts;
      const [{ tokens, prompt }] = data.sequences;
      const plainRun = data.runs.find((one) => one.cache === "none");
      const same = twin(run, plainRun, raw);
      const done = before(run, event);
      const shown = shownAt(record, event, run.cache !== "none", layer);
      assert.deepEqual(shown.live, queriesOf(raw));
      assert.deepEqual(shown.marks, withThoseToCome(want.marks, run, event, shown.columns));
      assert.deepEqual(shown.tokens, want.tokens);
      assert.deepEqual(shown.entries, want.entries.slice(0, shown.columns));
      assert.deepEqual(shown.untouched, want.untouched);
      assert.equal(shown.note, want.note);
      assert.deepEqual(
        shown.targets,
        (part.target ?? []).map((i) => tokens[i].text),
      );
      assert.deepEqual(
        shown.heads,
        data.recorded.filter(([l]) => l === layer).map(([, head]) => head),
      );
      const { head_names: called } = data.model;
      assert.deepEqual(
        shown.names,
        shown.heads.map((head) => called?.[head] ?? `head ${head + 1}`),
      );
      checkWork(shown, data, run, event, done, part, same);
      checkLedger(shown, run, event, done, prompt);
      checkSentence(shown, raw, part, run.cache === "none" ? null : same, tokens);
      const looksAt = new Map();
      for (const one of [...done.parts, part]) {
        const queries = spread([...one.repeated, ...one.new]).sort((a, b) => a - b);
        queries.forEach((query, k) => looksAt.set(query, spread(one.visible[k])));
      }
      const rowOf = (query, head) => {
        const text = data.weights.rows[`0.${query}.${layer}.${head}`];
        return text === undefined ? null : decodeWeights(text);
      };
      const weightsOf = (query, head) => {
        const rows = (head === null ? shown.heads : [head]).map((one) => rowOf(query, one));
        if (rows.includes(null)) return null;
        const mean = (k) => rows.reduce((sum, row) => sum + row[k], 0) / rows.length;
        return looksAt.get(query).map((j, k) => [j, mean(k)]);
      };
      const kept = (data.values ?? []).find((one) => one.layer === layer);
      const contextOf = (query, head) => {
        const all = [...data.runs[0].passes, ...data.runs.at(-1).passes].flatMap((one) => one.parts);
        const first = all.find((one) => spread(one.new).includes(query));
        const numbers = first?.contexts[`${layer}.${head}`]?.[spread(first.new).indexOf(query)];
        return numbers?.length === 1 ? numbers[0] : null;
      };
      const cache = shown.pass === "Training" ? "" : `, cache ${run.cache === "none" ? "off" : "on"}`;
      for (const view of shown.views) {
        assert.equal(
          view.words[0],
          `${shown.pass}${cache}. Numbers in brackets are places in the text, from 1.`,
        );
        checkView(view, shown, want, weightsOf, kept?.v ?? null, contextOf, part, tokens);
        checkWords(shown, want, view, tokens);
        checkWeightsInWords(view, weightsOf, new Map(shown.heads.map((h, k) => [h, shown.names[k]])), tokens);
      }
    }
  });
