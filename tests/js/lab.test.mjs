// What the lab counts: against the counts of traces, the formulas of a whole reply, a count by hand, and Python's.
import assert from "node:assert/strict";
import { test } from "node:test";
import { caseAtFirst } from "../../helpers/stepper/js/case.ts";
import { formatUnit } from "../../helpers/stepper/js/format.ts";
import * as lab from "../../helpers/stepper/js/lab.ts";
import { factsOf } from "../../helpers/stepper/js/step_time.ts";
import { sizeOf } from "../../helpers/stepper/js/trace.ts";
import { load, record } from "./traces.mjs";

const { models } = load("work");
const find = (name) => models.find((one) => one.name === name);
const llama = find("Llama-3.1-8B");
const FULL = lab.widestOf(llama);
const window = (tokens) => ({ ...FULL, window: tokens });
const NAMES = ["tokens", "pairs", "written", "read", "againTokens", "againPairs"];
const at = (run, event, prompt, length, kind = FULL) =>
  lab.accumulated(run, run.events[event], prompt, length, kind);

test("a ratio that rounds to ten has no decimals", () => {
  const step = { kv_cache: 0, weights: 9.97, attention: 0, products: 1 };
  const facts = {
    chosen: { users: 2 },
    pass: { tokens: 2 },
    step,
    bound: "memory-bound",
    longest: "weights",
  };
  assert.match(lab.insightOf({ phase: "decode", keeps: true, prompt: 1 }, facts), / 1\/10 as long/);
});

test("as recorded, it counts what the trace counted, and sums it up", () => {
  for (const name of ["toy", "long run", "layers", "two", "n64", "one", "diary"]) {
    const { runs, prompt, withCache, withoutCache } = record(name);
    for (const run of runs) {
      const sums = Object.fromEntries(NAMES.map((one) => [one, 0]));
      for (const event of run.events) {
        const { counts, part, index } = event;
        const [kept, plain] = [withCache, withoutCache].map((one) => one?.events[index].counts);
        const want = {
          tokens: counts.positions,
          pairs: counts.pairs,
          written: sizeOf(part.written),
          read: counts.rows_read,
          againTokens: plain && kept ? plain.positions - kept.positions : sizeOf(part.repeated),
        };
        if (plain && kept) want.againPairs = plain.pairs - kept.pairs;
        const { now, soFar } = lab.accumulated(run, event, prompt, null, FULL);
        for (const [key, count] of Object.entries(want)) {
          assert.equal(now[key], count, `${name}, ${run.name}, ${event.name}: ${key}`);
          if (event.counted) sums[key] += count;
          assert.equal(soFar[key], sums[key], `${name}, ${run.name}, ${event.name}: ${key} so far`);
        }
      }
    }
  }
});

/** What passes count, query by query and key by key: [processed, before] of each; `keeps`: their rows stay. */
function byHand(passes, reach, keeps) {
  const total = { tokens: 0, pairs: 0, written: 0, read: 0 };
  for (const [tokens, before] of passes) {
    const seen = new Set();
    for (let query = before; query < before + tokens; query++)
      for (let key = 0; key <= query; key++)
        if (query - key < reach) {
          total.pairs++;
          if (key < before) seen.add(key);
        }
    total.tokens += tokens;
    if (keeps) Object.assign(total, { written: total.written + tokens, read: total.read + seen.size });
  }
  return total;
}

test("a chosen length stretches the prompt alone: counted by hand, with windows, cache on and off", () => {
  const { withCache, withoutCache, prompt } = record("long run"); // training, prefill, 7 decode steps
  for (const length of [1, 2, 5, 9, 23, 40])
    for (const reach of [2, 3, 8, 1000])
      for (let n = 1; n <= 8; n++) {
        const steps = [...Array(n).keys()];
        const cached = byHand(
          steps.map((k) => (k ? [1, length + k - 1] : [length, 0])),
          reach,
          true,
        );
        const plain = byHand(
          steps.map((k) => [length + k, 0]),
          reach,
          false,
        );
        const again = {
          againTokens: plain.tokens - cached.tokens,
          againPairs: plain.pairs - cached.pairs,
        };
        const what = `${length} tokens, window ${reach}, ${n} passes`;
        const kind = window(reach);
        assert.deepEqual(at(withCache, n, prompt, length, kind).soFar, { ...cached, ...again }, what);
        assert.deepEqual(at(withoutCache, n, prompt, length, kind).soFar, { ...plain, ...again }, what);
      }
});

test("a whole reply is O(n), O(n²), O(n³) as the formulas have it", () => {
  const { withCache, withoutCache, prompt } = record("n64"); // 61 words
  const triangle = (t) => (t * (t + 1)) / 2;
  const pyramid = (t) => (t * (t + 1) * (t + 2)) / 6; // the sum of triangles up to t
  for (const P of [100, 1000, 100_000])
    for (const n of [1, 2, 61]) {
      const t = P + n - 1; // tokens that the last pass sees
      const cached = at(withCache, n, prompt, P).soFar;
      const plain = at(withoutCache, n, prompt, P).soFar;
      assert.equal(cached.tokens, t);
      assert.equal(cached.pairs, triangle(t), "each pair once");
      assert.equal(cached.written, t);
      assert.equal(cached.read, triangle(t - 1) - triangle(P - 1));
      assert.equal(plain.tokens, triangle(t) - triangle(P - 1));
      assert.equal(plain.pairs, pyramid(t) - pyramid(P - 1));
      assert.deepEqual([plain.written, plain.read], [0, 0]);
      assert.equal(cached.againTokens, plain.tokens - cached.tokens);
      assert.equal(plain.againPairs, plain.pairs - cached.pairs);
    }
});

test("the training reference shows its own counts and is in no sum", () => {
  const { withCache, prompt } = record("toy");
  const { now, soFar } = at(withCache, 0, prompt, 1000);
  assert.deepEqual(Object.values(now), [1000, 500500, 0, 0, 0, 0]);
  assert.deepEqual(Object.values(soFar), [0, 0, 0, 0, 0, 0]);
  const logits = (event) => lab.passAt(withCache.events[event], prompt, 1000).logits;
  assert.deepEqual([0, 1, 2].map(logits), [1000, 1, 1], "each token's in training, else the last one's");
});

test("it is Python's, for models with windows, states and latents", () => {
  const traces = {};
  for (const [name, keeps, event, model, length, counts] of load("lab")) {
    const { withCache, withoutCache, prompt } = (traces[name] ??= record(name));
    const run = keeps ? withCache : withoutCache;
    const { now, soFar } = at(run, event, prompt, length, lab.widestOf(find(model)));
    const what = `${name}, ${model}, ${length}, pass ${event}`;
    assert.deepEqual(
      [now, soFar].map((one) => NAMES.map((key) => one[key])),
      counts,
      what,
    );
  }
});

test("of several kinds of layers, those that see most are counted", () => {
  const reach = (name) => [lab.widestOf(find(name))].map(({ state, window }) => [state, window])[0];
  assert.deepEqual(reach("gpt-oss-20b"), [false, null]);
  assert.deepEqual(reach("Qwen3.5-27B"), [false, null]);
  assert.deepEqual(reach("Mistral-7B v0.1"), [false, 4096]);
});

test("shapes of the model that was recorded are the shapes that were recorded", () => {
  const { runs, prompt } = record("diary");
  const ours = find("this series' own model");
  for (const run of runs)
    for (const event of run.events) {
      const { operations } = lab.shapesAt(lab.passAt(event, prompt, null), ours);
      const got = Object.fromEntries(operations);
      for (const { q, k, v, scores } of event.raw.shapes)
        assert.deepEqual(
          [got.q, got.all, got.all, got.scores],
          [q, k, v, scores].map((s) => s.slice(1)),
        );
      assert.deepEqual(got.new, [2, event.queries.length, 32]);
      assert.deepEqual(got.contexts, got.q);
      assert.deepEqual(got.logits, [event.phase === "training" ? event.queries.length : 1, 185]);
    }
});

test("shapes of published models at a chosen length", () => {
  const { withCache, prompt } = record("toy");
  const shapes = (name, event, length) =>
    lab.shapesAt(lab.passAt(withCache.events[event], prompt, length), find(name));
  assert.deepEqual(Object.fromEntries(shapes("Llama-3.1-8B", 2, 1000).operations), {
    x: [1, 4096],
    q: [32, 1, 128],
    new: [8, 1, 128],
    all: [8, 1001, 128],
    scores: [32, 1, 1001],
    contexts: [32, 1, 128],
    mlp: [1, 4096],
    logits: [1, 128256],
  });
  assert.deepEqual(shapes("Llama-3.1-8B", 1, 1000).formula, {
    T: 1000,
    S: 1000,
    k: 128,
    v: 128,
    latent: false,
  });
  assert.deepEqual(shapes("Mistral-7B v0.1", 2, 10000).formula, {
    T: 1,
    S: 4096,
    k: 128,
    v: 128,
    latent: false,
  });
  assert.deepEqual(shapes("DeepSeek-V3", 2, 1000).formula, { T: 1, S: 1001, k: 576, v: 512, latent: true });
  const oneKvHead = { entry_size: 2 * 128, pair: 2 * 8 * 2 * 128 };
  assert.deepEqual(lab.headOf(oneKvHead, 8), { latent: false, kvHeads: 1, k: 128, v: 128 });
  for (const { n_heads, kinds } of models)
    for (const kind of kinds.filter((one) => !one.state)) {
      const { kvHeads, k, v, latent } = lab.headOf(kind, n_heads);
      assert.ok(Number.isInteger(kvHeads) && n_heads % kvHeads === 0);
      assert.deepEqual([latent ? k : kvHeads * (k + v), 2 * n_heads * (k + v)], [kind.entry_size, kind.pair]);
    }
});

test("each pass has its lesson, and the bound moves from prefill to decode", () => {
  const ran = (phase, keeps = true, prompt = 1000) => ({ phase, keeps, prompt });
  const machines = load("work");
  const facts = (tokens, before, users = 1, more = {}) =>
    factsOf(caseAtFirst(machines, { users, ...more }), { tokens, before, logits: 1 });
  const said = (one, ...pass) => lab.insightOf(one, facts(...pass));
  assert.match(said(ran("training"), 1000, 0), /All 1,000 tokens .* the forward pass alone/);
  assert.match(
    said(ran("prefill"), 1000, 0),
    /All 1,000 tokens share .* takes 3\.\d times as long as reading\.$/,
  );
  assert.match(said(ran("prefill"), 23, 0), /All 23 tokens share .* From 318 tokens on/);
  assert.match(said(ran("prefill"), 100, 0, 4), /All 400 tokens .* takes 1\.\d times/);
  assert.match(
    said(ran("decode"), 1, 1000),
    /which in prefill 1,000 tokens shared\. Computing takes 1\/2\d\d as long/,
  );
  assert.match(said(ran("decode"), 1, 42, 64), /^64 users share .* 1\/4\.\d/);
  assert.match(said(ran("decode"), 1, 42, 512), /^512 users .* computing takes longer than reading/);
  assert.match(said(ran("decode"), 1, 10000, 64), /larger than the weights/);
  assert.match(said(ran("decode", false), 43, 0), /all 43 tokens are processed again/);
  const slow = { bandwidthReached: 100, computeReached: 1, kvBits: 16 };
  assert.match(said(ran("prefill"), 5, 0, 1, slow), /computing takes \d\.\d times/);
  const bounds = [facts(1000, 0), facts(1, 1000)].map(({ bound }) => bound);
  assert.deepEqual(bounds, ["compute-bound", "memory-bound"]);
});

test("three digits and a prefix", () => {
  const cases = {
    "15.0 GB": 15.01e9,
    "4.48 ms": 4.482e-3,
    "1.00 kB": 999.6,
    "1.00 GB": 999.96e6,
    "100 B": 99.96,
    "0 B": 0,
    "29.7 TFLOP": 29.7e12,
  };
  for (const [said, x] of Object.entries(cases))
    assert.equal(formatUnit(x, said.split(" ")[1].replace(/^[GTkm](?=.)/, "")), said);
});
