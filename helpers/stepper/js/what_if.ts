// What if: the reader changes the toy's prompt and sees which KV entries of a cache that was filled before go stale.
import VIEW from "../view.json" with { type: "json" };
import { keyTexts } from "./words.ts";
import { fill, fillText, formatNumber, formatPercent } from "./format.ts";
import { runToy, toyContexts, toySays, type Entries, type Toy } from "./toy.ts";
import type { Parts } from "./types";

export type Token = { word: string; number: number };
export type Result = ReturnType<typeof whatIf>;
/** What a cell holds now and held before. */
type State = "new" | "stale" | "kept" | "same";
type Cell = { now: number | number[]; was: number | number[] | null; state: State };
export type Layer = { k: Cell[]; v: Cell[] };

const WHAT = VIEW.what_if;
export const KINDS = ["k", "v"] as const;
const DEEPEST = WHAT.layers.length - 1;
const ALIKE = 1e-9; // of a number's size: two ways to the same sum may differ by so much
const VISIBLE = 0.001; // a difference of shares that can be read off
const TYPED = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const COSTS: Record<string, number> = { "": 0, number: 2, word: 3, one: 2 }; // of an edit: one in and one out are dearer than an exchange

function editKind(old: Token, token: Token) {
  return old.word !== token.word ? "word" : old.number !== token.number ? "number" : "";
}

/** Index of the token of the cache that each token of the prompt is or was exchanged for; null if it was put in. */
function pairTokens(before: Token[], now: Token[]) {
  // cost[i][j] is that of the cheapest edits which make the tokens from j on out of those from i on
  const cost = Array.from({ length: before.length + 1 }, () => Array(now.length + 1).fill(0));
  const exchanged = (i: number, j: number) => COSTS[editKind(before[i], now[j])] + cost[i + 1][j + 1];
  for (let i = before.length; i >= 0; i--)
    for (let j = now.length; j >= 0; j--)
      if (i === before.length || j === now.length)
        cost[i][j] = COSTS.one * (before.length - i + now.length - j);
      else cost[i][j] = Math.min(exchanged(i, j), COSTS.one + Math.min(cost[i + 1][j], cost[i][j + 1]));
  const from: (number | null)[] = Array(now.length).fill(null);
  for (let i = 0, j = 0; i < before.length && j < now.length;)
    if (cost[i][j] === exchanged(i, j)) from[j++] = i++;
    else if (cost[i][j] === COSTS.one + cost[i + 1][j]) i++;
    else j++;
  return from;
}

/** How many tokens from the first on are the same: a cache may keep their KV entries and no others. */
export function commonPrefix(before: Token[], now: Token[]) {
  const differs = now.findIndex((token, i) => !before[i] || editKind(before[i], token));
  return differs < 0 ? now.length : differs;
}

function sameNumbers(a: number | number[], b: number | number[]) {
  const others = [b].flat();
  return [a].flat().every((x, i) => Math.abs(x - others[i]) <= ALIKE * Math.max(1, Math.abs(x)));
}

/** What becomes of the KV entries of a cache that holds `before` when the prompt is `now`. */
export function whatIf(toy: Toy, before: Token[], now: Token[]) {
  const carried = [before, now].map((tokens) => tokens.map((token) => token.number));
  const [old, fresh] = carried.map((numbers) => runToy(toy, numbers, DEEPEST + 1));
  const from = pairTokens(before, now);
  const kept = commonPrefix(before, now);
  const says = toySays(toy, fresh.contexts);
  const compare = (rows: (number | number[])[], were: (number | number[])[]): Cell[] =>
    rows.map((row, j) => {
      const i = from[j];
      if (i === null) return { now: row, was: null, state: "new" };
      const was = were[i];
      return { now: row, was, state: !sameNumbers(row, was) ? "stale" : j < kept ? "kept" : "same" };
    });
  return {
    tokens: [before, now],
    from,
    kinds: from.map((i, j) => (i === null ? "in" : editKind(before[i], now[j]))),
    out: before.filter((_, i) => !from.includes(i)),
    kept,
    rerun: Math.max(1, now.length - kept), // the last in any case: the cache holds no logits
    layers: fresh.entries.map(({ k, v }, layer) => ({
      k: compare(k, old.entries[layer].k),
      v: compare(v, old.entries[layer].v),
    })),
    before: toySays(toy, old.contexts),
    now: says,
    mended: mended(toy, old.entries, fresh.entries, from, says),
  };
}

/** What it says if layer 1's entries are made again and of layer 2's only the last; null if nobody could tell. */
function mended(
  toy: Toy,
  old: Entries[],
  fresh: Entries[],
  from: (number | null)[],
  now: ReturnType<typeof toySays>,
) {
  const { k, v } = fresh[DEEPEST];
  if (old[DEEPEST].v.length !== v.length || from.some((i, j) => i !== j)) return null;
  const says = toySays(toy, toyContexts(toy, k, [...old[DEEPEST].v.slice(0, -1), ...v.slice(-1)]));
  return says.probabilities.some((p, i) => Math.abs(p - now.probabilities[i]) > VISIBLE) ? says : null;
}

/** What was changed, as parts of a sentence. */
function sayChanges({ from, kinds, out, tokens: [before, now] }: Result) {
  const changed = kinds.filter(Boolean);
  const put = changed.filter((kind) => kind === "in").length;
  if (changed.length + out.length > 1)
    return fill(WHAT.changes.many, { edited: changed.length - put, put, out: out.length });
  const j = kinds.findIndex(Boolean);
  const [old, token] = [before[from[j] ?? -1] ?? out[0], now[j]];
  const numbers = { now: formatNumber(token?.number ?? 0), was: formatNumber(old?.number ?? 0) };
  const words = { token: { token: token?.word }, old: { token: old?.word } };
  const kind = (changed[0] ?? "out") as keyof typeof WHAT.changes;
  return fill(WHAT.changes[kind], { ...words, ...numbers });
}

/** Which KV entries went stale, layer by layer. */
function sayStale(layers: Layer[]) {
  const said = layers.flatMap((rows, layer) =>
    KINDS.map((kind) => {
      const many = rows[kind].filter((cell) => cell.state === "stale").length;
      return many ? fillText(WHAT.stale[layer][kind], { many }) : "";
    }),
  );
  return said.filter(Boolean).join(" ") || WHAT.fresh;
}

/** The whole sentence under the entries, as parts. */
export function sayWhatIf(result: Result): Parts {
  const { kept, rerun, layers, mended, tokens } = result;
  const [before, now] = tokens;
  if (kept === now.length && kept === before.length) return [WHAT.unchanged];
  const cells = layers.flatMap(({ k, v }) => [k, v]);
  const lucky = now.filter((_, j) => cells.every((row) => row[j].state === "same")).length;
  const said = [sayStale(layers), fillText(WHAT.kept[kept < now.length ? "some" : "all"], { kept, rerun })];
  if (lucky) said.push(fillText(WHAT.lucky, { lucky }));
  const parts = [...sayChanges(result), ` ${said.join(" ")}`];
  if (!mended) return parts;
  const wrong = formatPercent(mended.probabilities[mended.choice]);
  return [...parts, " ", ...fill(WHAT.trap, { word: { token: mended.word }, wrong })];
}

/** The number or numbers of K or V, and under them what became of it, in words. */
export function cellTexts({ now, was, state }: Cell) {
  const write = (row: number | number[]) =>
    Array.isArray(row) ? keyTexts(row).join(" · ") : formatNumber(row);
  if (state !== "stale" || was === null) return [write(now), state === "new" ? WHAT.entries.new : ""];
  if (write(now) === write(was)) return [write(now), was < now ? WHAT.less : WHAT.more];
  return [write(now), fillText(WHAT.was, { was: write(was) })];
}

/** A number as a reader types it; null if it is none, or over the most. */
export function typedNumber(text: string) {
  const plain = text.trim().replace("−", "-");
  const number = TYPED.test(plain) ? Number(plain) + 0 : NaN; // −0 is 0
  return Math.abs(number) <= WHAT.most.number ? number : null;
}

/** The prompt with a field that was typed into, or null where that is no word or no number. A known word brings its
 * number along as soon as it is `done`. */
export function edited(
  now: Token[],
  j: number,
  name: "word" | "number",
  text: string,
  known: Map<string, number> | null,
) {
  const { word, number } = now[j];
  const token =
    name === "word"
      ? { word: text, number: known?.get(text) ?? number }
      : { word, number: typedNumber(text) };
  return token.number === null || !token.word.trim() ? null : now.with(j, token as Token);
}

/** What an address tells of a prompt; null where it is as at first. */
export function toldPrompt(now: Token[], first: Token[]) {
  if (commonPrefix(first, now) === Math.max(first.length, now.length)) return { words: null, numbers: null };
  const words = now.map(({ word }) => word.replace(/[%,]/g, encodeURIComponent));
  return { words: words.join(), numbers: now.map(({ number }) => number).join() };
}

/** The prompt that an address tells: as many tokens as are right from the first on; whether those are all. */
export function readPrompt(
  words: string | undefined,
  numbers: string | undefined,
  known: Map<string, number>,
) {
  const [texts, carried] = [words, numbers].map((list) => list?.split(",") ?? []);
  const tokens = texts.map((text, i) => {
    const word = text.replace(/%2C/g, ",").replace(/%25/g, "%");
    return { word, number: i < carried.length ? typedNumber(carried[i]) : (known.get(word) ?? null) };
  });
  const wrong = tokens.findIndex((t, i) => !t.word.trim() || t.number === null || i >= WHAT.most.words);
  const right = (wrong < 0 ? tokens : tokens.slice(0, wrong)) as Token[];
  return { tokens: right, fits: right.length === texts.length && texts.length === carried.length };
}
