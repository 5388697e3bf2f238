// Which KV entries go stale, what may be kept and what is said, against Python's runs before and after a change.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  cellTexts,
  edited,
  readPrompt,
  sayWhatIf,
  toldPrompt,
  typedNumber,
  whatIf,
} from "../../helpers/stepper/js/what_if.ts";
import { formatNumber } from "../../helpers/stepper/js/format.ts";
import { load } from "./traces.mjs";

const { toy, cases } = load("what_if_cases");
const close = (a, b) => [a].flat().every((x, i) => Math.abs(x - [b].flat()[i]) < 1e-9);
const COSTS = [0, 2, 3];

/** What the pairs cost: a number 2, a word 3, one put in or taken out 2. */
function costOf({ from, out }, before, now) {
  const paired = from.map((i, j) => {
    if (i === null) return 2;
    return COSTS[before[i].word !== now[j].word ? 2 : Number(before[i].number !== now[j].number)];
  });
  return paired.reduce((sum, cost) => sum + cost, 2 * out.length);
}

test("rows, prefix, words and sentence of hundreds of changes", () => {
  const met = new Set();
  for (const { before, now, kept, cost, mended } of cases) {
    const got = whatIf(toy, before.tokens, now.tokens);
    assert.deepEqual([got.kept, got.rerun], [kept, Math.max(1, now.tokens.length - kept)]);
    const places = got.from.filter((i) => i !== null);
    assert.ok(places.every((i, n) => n === 0 || places[n - 1] < i));
    assert.equal(costOf(got, before.tokens, now.tokens), cost);
    const stale = got.layers.flatMap((layer, l) =>
      ["k", "v"].map((kind) => {
        const rows = now.rows[l][kind];
        const were = got.from.map((i) => (i === null ? null : before.rows[l][kind][i]));
        const states = rows.map((row, j) =>
          were[j] === null ? "new" : !close(row, were[j]) ? "stale" : j < kept ? "kept" : "same",
        );
        assert.deepEqual(
          layer[kind].map((cell) => cell.state),
          states,
        );
        assert.ok(
          layer[kind].every((cell, j) => close(cell.now, rows[j]) && close(cell.was ?? [], were[j] ?? [])),
        );
        for (const state of states) met.add(state);
        return [l + 1, kind.toUpperCase(), states.filter((state) => state === "stale").length];
      }),
    );
    assert.ok(
      close(got.before.probabilities, before.probabilities) &&
        close(got.now.probabilities, now.probabilities),
    );
    const inPlace = before.tokens.length === now.tokens.length && got.from.every((i, j) => i === j);
    const apart = inPlace && now.probabilities.some((p, i) => Math.abs(p - mended.probabilities[i]) > 0.001);
    assert.equal(got.mended !== null, apart);
    if (got.mended) assert.ok(close(got.mended.probabilities, mended.probabilities));
    checkSentence(got, before.tokens, now.tokens, stale, met);
  }
  assert.deepEqual([...met].sort(), [
    "carries",
    "changed",
    "inserted",
    "kept",
    "lucky",
    "new",
    "removed",
    "replaces",
    "same",
    "stale",
    "trap",
  ]);
});

/** What was changed, from the tokens alone. */
function changesOf({ from }, before, now) {
  const pairs = from.map((i, j) => [before[i] ?? null, now[j]]);
  const put = pairs.filter(([old]) => !old).map(([, token]) => token);
  const out = before.filter((_, i) => !from.includes(i));
  const other = (name) => pairs.filter(([old, token]) => old && old[name] !== token[name]);
  const edited = pairs.filter(
    ([old, token]) => old && (old.word !== token.word || old.number !== token.number),
  );
  const tokens = edited.length === 1 ? "1 token" : `${edited.length} tokens`;
  if (edited.length + put.length + out.length > 1)
    return `${tokens} changed, ${put.length} inserted, ${out.length} removed.`;
  if (put.length) return `${put[0].word} is inserted.`;
  if (out.length) return `${out[0].word} is removed.`;
  const [[old, token]] = edited;
  if (other("word").length) return `${token.word} replaces ${old.word}.`;
  return `${token.word} carries ${formatNumber(token.number)} now, not ${formatNumber(old.number)}.`;
}

function checkSentence(got, before, now, stale, met) {
  const said = sayWhatIf(got)
    .map((part) => part.token ?? part)
    .join("");
  if (said.startsWith("Nothing is changed")) return assert.deepEqual(now, before);
  const changes = changesOf(got, before, now);
  assert.ok(said.startsWith(changes), `${said}: ${changes}`);
  met.add(changes.match(/changed|inserted|removed|replaces|carries/)[0]);
  const found = [...said.matchAll(/(K|V) of (\d+) entr(?:y|ies) went stale in layer (\d)/g)].map((m) => [
    m[3],
    m[1],
    m[2],
  ]);
  assert.deepEqual(found.map(String), stale.filter(([, , many]) => many).map(String), said);
  assert.match(said, new RegExp(`KV entries of (all )?${got.kept} tokens?( that are left)? may be kept`));
  if (got.kept < now.length) assert.match(said, new RegExp(`\\b${got.rerun} tokens? must run again`));
  const lucky = now.filter((_, j) =>
    got.layers.every(({ k, v }) => k[j].state === "same" && v[j].state === "same"),
  );
  assert.equal(said.match(/entries of (\d+) tokens? after/)?.[1] ?? "0", String(lucky.length));
  assert.equal(said.includes("stale entries."), got.mended !== null);
  if (got.mended) assert.ok(said.includes(`say ${toy.vocabulary[got.mended.choice]} with`));
  if (lucky.length) met.add("lucky");
  if (got.mended) met.add("trap");
}

test("a share that falls is a difference, where none rises as far", () => {
  const before = ["Today", "weather", "is", "so"].map((word) => ({ word, number: toy.numbers[word] }));
  const { mended, now } = whatIf(toy, before, [
    ...before.slice(0, 2),
    { word: "is", number: -30 },
    { word: "so", number: -22 },
  ]);
  const apart = mended.probabilities.map((p, i) => p - now.probabilities[i]);
  assert.ok(Math.max(...apart) < 0.001 && Math.min(...apart) < -0.001);
});

test("a cell says in words what became of it", () => {
  assert.deepEqual(cellTexts({ now: 8, was: 20, state: "stale" }), ["8", "old 20"]);
  assert.deepEqual(cellTexts({ now: 16.2504, was: 16.25, state: "stale" }), ["16.25", "old: a bit less"]);
  assert.deepEqual(cellTexts({ now: [1, 2], was: [0, 1], state: "stale" }), ["1 · 2", "old 0 · 1"]);
  assert.deepEqual(cellTexts({ now: [0, 1], was: null, state: "new" }), ["0 · 1", "new"]);
  assert.deepEqual(cellTexts({ now: -4, was: -4, state: "same" }), ["−4", ""]);
});

test("numbers as they are typed", () => {
  const good = { 8: 8, " 0.5 ": 0.5, "−4": -4, ".5": 0.5, "1e3": 1000, "-0": 0, "+7": 7, "5.": 5 };
  for (const [text, number] of Object.entries(good)) assert.equal(typedNumber(text), number, text);
  for (const text of [
    "",
    " ",
    "x",
    "8x",
    "1e400",
    "Infinity",
    "NaN",
    "1e9",
    "-1e9",
    "-1001",
    "1001",
    "0x10",
    "--1",
    "1 2",
  ])
    assert.equal(typedNumber(text), null, text);
});

test("prompts out of an address: what is right from the first on", () => {
  const known = new Map(Object.entries(toy.numbers));
  const read = (words, numbers) => {
    const { tokens, fits } = readPrompt(words, numbers, known);
    return [tokens.map(({ word, number }) => `${word}=${number}`).join(" "), fits];
  };
  assert.deepEqual(read(undefined, undefined), ["", true]);
  assert.deepEqual(read("Today,so", "1,2.5"), ["Today=1 so=2.5", true]);
  assert.deepEqual(read("a%2Cb,%252C,%E2", "1,2,3"), ["a,b=1 %2C=2 %E2=3", true]);
  assert.deepEqual(read("Today,weath", "1"), ["Today=1", false]);
  assert.deepEqual(read("Today,weather,is", "1"), ["Today=1 weather=20 is=1", false]);
  assert.deepEqual(read("Today,constructor", "1"), ["Today=1", false]);
  assert.deepEqual(read("Today", "1,2"), ["Today=1", false]);
  assert.deepEqual(read("Today,,is", "1,2,3"), ["Today=1", false]);
  assert.deepEqual(read("", ""), ["", false]);
  assert.equal(readPrompt("is,".repeat(65), "1,".repeat(65), known).tokens.length, 64);
});

test("a field that is typed into: a known word brings its number when it is done, half a number is none", () => {
  const now = [
    { word: "Today", number: 10 },
    { word: "is", number: 1 },
  ];
  const known = new Map([["nice", 14]]);
  assert.deepEqual(edited(now, 1, "word", "nice", null)[1], { word: "nice", number: 1 });
  assert.deepEqual(edited(now, 1, "word", "nice", known)[1], { word: "nice", number: 14 });
  assert.deepEqual(edited(now, 1, "word", "odd", known), [now[0], { word: "odd", number: 1 }]);
  assert.deepEqual(edited(now, 0, "number", "0.5", known), [{ word: "Today", number: 0.5 }, now[1]]);
  assert.deepEqual(
    ["-", ""].map((text) => edited(now, 0, "number", text, known)),
    [null, null],
  );
  assert.equal(edited(now, 0, "word", " ", known), null);
});

test("an address tells a prompt that is another one, and it is read back", () => {
  const first = [
    { word: "a", number: 1 },
    { word: "b,%", number: 2 },
  ];
  assert.deepEqual(toldPrompt(first, first), { words: null, numbers: null });
  for (const now of [first.slice(0, 1), [...first, first[0]], [first[1], { word: "a", number: -0.5 }]]) {
    const { words, numbers } = toldPrompt(now, first);
    assert.deepEqual(readPrompt(words, numbers, new Map()), { tokens: now, fits: true });
  }
});
