// What the cost strip says of a pass, on models and cards of Python's tables.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as strip from "../../helpers/stepper/js/strip.js";
import { frame, load, record } from "./traces.mjs";

const machines = load("work");
const find = (list, name) => list.find((one) => one.name === name);
const [llama, experts] = ["Llama-3.1-8B", "gpt-oss-120b"].map((name) => find(machines.models, name));
const h100 = find(machines.cards, "H100");
const decode = { phase: "decode", keeps: true, tokens: 1, before: 42 };
const prefill = { phase: "prefill", keeps: true, tokens: 23, before: 0 };
const facts = (ran, text = null, users = 1, model = llama) =>
  strip.factsOf(ran, model, h100, { ...strip.choiceAtFirst(machines), text, users });

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
    assert.equal(strip.formatUnit(x, said.split(" ")[1].replace(/^[GTkm](?=.)/, "")), said);
});

test("more text is a longer prompt, or more rows before the new token", () => {
  assert.deepEqual(strip.asIf(prefill, 1000, 2), { tokens: 1000, before: 0, users: 2, logits: 1 });
  assert.deepEqual(strip.asIf(decode, 1000, 1), { tokens: 1, before: 1000, users: 1, logits: 1 });
  assert.deepEqual(strip.asIf({ ...decode, keeps: false, tokens: 43, before: 0 }, 100, 1).before, 0);
  assert.equal(strip.asIf({ ...prefill, phase: "training" }, null, 1).logits, 23);
});

test("each pass has its lesson, and the bound moves as one steps", () => {
  const said = (ran, ...choice) => strip.insightOf(ran, facts(ran, ...choice));
  assert.match(said(prefill), /All 23 tokens share .* From 318 tokens on/);
  assert.match(said(prefill, 1000), /arithmetic takes 3\.\d times as long .* 98%/);
  assert.match(said(decode), /has a whole reading .* 1\/295/);
  assert.match(said(decode, null, 64), /64 users share .* 1\/4\.\d/);
  assert.match(said(decode, null, 512), /now arithmetic/);
  assert.match(said(decode, 10000, 64), /more bytes than the weights/);
  assert.match(said({ ...decode, keeps: false, tokens: 43, before: 0 }), /all 43 tokens are processed again/);
  assert.match(said({ ...prefill, phase: "training" }), /forward pass alone/);
  assert.deepEqual(
    [null, 1000].flatMap((text) => [facts(prefill, text).bound, facts(decode, text).bound]),
    ["weights", "weights", "arithmetic", "weights"],
  );
  const [low, high] = [decode, prefill].map((ran) => strip.placeOf(facts(ran)));
  assert.ok(
    high.x > low.x && high.y < low.y,
    "more operations a byte stand further right and nearer to the roof",
  );
  assert.match(strip.workSentence(facts(prefill, 1000)).work, /weights 15\.\d GB, rows of K and V 131 MB\.$/);
});

test("beside a pass stands the first of the other kind", () => {
  const named = (event) => strip.comparedWith(frame(record("long run"), event)).map(([name]) => name);
  assert.deepEqual([1, 2, 4].map(named), [["Decode 1"], ["Prefill"], ["Prefill"]]);
});

test("who fits is said, and who does not", () => {
  const said = (text, users, model = llama) =>
    strip.fitSentence(facts(decode, text, users, model), model, h100);
  assert.match(said(1000, 1), /^\d+ users with 1,001 tokens/);
  assert.match(said(10000, 64), /64 users .* do not fit on H100: 53 do/);
  assert.match(said(10000, 53), /^53 users .* each fit on/);
  assert.match(said(100, 1, experts), /weights of gpt-oss-120b alone/);
});

test("an address tells the choice, and what it does not know is named", () => {
  const choice = { model: 0, card: 1, text: 1000, users: 8 };
  const told = new Map(Object.entries(strip.toldChoice(choice, machines)).map(([k, v]) => [k, String(v)]));
  const wrong = [];
  assert.deepEqual(strip.choiceFrom(told, machines, wrong), choice);
  const odd = new Map([
    ["as", "Llama-9"],
    ["users", "3"],
    ["text", "1e9"],
  ]);
  assert.deepEqual(strip.choiceFrom(odd, machines, wrong), strip.choiceAtFirst(machines));
  assert.deepEqual(wrong.sort(), ["as", "text", "users"]);
});
