// What the cost strip says of a pass, on models and cards of Python's tables.
import assert from "node:assert/strict";
import { test } from "node:test";
import { caseAtFirst } from "../../helpers/stepper/js/case.js";
import { formatUnit } from "../../helpers/stepper/js/format.js";
import { factsOf } from "../../helpers/stepper/js/step_time.js";
import { asIf, insightOf } from "../../helpers/stepper/js/strip.js";
import { load } from "./traces.mjs";

const machines = load("work");
const decode = { phase: "decode", keeps: true, tokens: 1, before: 42 };
const prefill = { phase: "prefill", keeps: true, tokens: 23, before: 0 };
const facts = (ran, tokens = null, users = 1) =>
  factsOf(caseAtFirst(machines, { tokens, users }), asIf(ran, tokens));

test("three digits and a prefix", () => {
  const cases = {
    "15.0 GB": 15.01e9,
    "4.48 ms": 4.482e-3,
    "1.00 kB": 999.6,
    "100 B": 99.96,
    "0 B": 0,
    "29.7 TFLOP": 29.7e12,
  };
  for (const [said, x] of Object.entries(cases))
    assert.equal(formatUnit(x, said.split(" ")[1].replace(/^[GTkm](?=.)/, "")), said);
});

test("more text is a longer prompt, or more rows before the new token", () => {
  assert.deepEqual(asIf(prefill, 1000), { tokens: 1000, before: 0, logits: 1 });
  assert.deepEqual(asIf(decode, 1000), { tokens: 1, before: 1000, logits: 1 });
  assert.deepEqual(asIf({ ...decode, keeps: false, tokens: 43, before: 0 }, 100).before, 0);
  assert.equal(asIf({ ...prefill, phase: "training" }, null).logits, 23);
});

test("each pass has its lesson, and the bound moves as one steps", () => {
  const said = (ran, ...choice) => insightOf(ran, facts(ran, ...choice));
  assert.match(said(prefill), /All 23 tokens share .* From 318 tokens on/);
  assert.match(said(prefill, 1000), /computing takes 3\.\d times as long .* 98%/);
  assert.match(said(decode), /has a whole reading .* 1\/295/);
  assert.match(said(decode, null, 64), /64 users share .* 1\/4\.\d/);
  assert.match(said(decode, null, 512), /now computing/);
  assert.match(said(decode, 10000, 64), /more bytes than the weights/);
  assert.match(said({ ...decode, keeps: false, tokens: 43, before: 0 }), /all 43 tokens are processed again/);
  assert.match(said({ ...prefill, phase: "training" }), /forward pass alone/);
  assert.deepEqual(
    [null, 1000].flatMap((text) => [facts(prefill, text).longest, facts(decode, text).longest]),
    ["weights", "weights", "products", "weights"],
  );
});
