// The live view's facts: what has run at a time, how much slower it is shown, what is stale.
// Every number comes from the Worker's answers.
import type { Config, Answer } from "./protocol";

type Pass = Extract<Answer, { op: "pass" }>;
/** A run, pass by pass, as it comes in; `over` when none is to come. `ends` are milliseconds from its start. */
export type Lane = { passes: Pass[]; ends: number[]; over: boolean };

const FACTORS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 200, 500, 1000];
export const SHOWN = 40; // words of a lane at most, so that both lanes stand on a phone's screen
const ON = 10; // so many words further on goes what is shown
/** The word by which the shipped model ends a text. */
export const EOS = "<eos>";
const BYTES = 4; // of a number in the page's cache: float32

export const emptyLane = (): Lane => ({ passes: [], ends: [], over: false });

export function addPass(lane: Lane, pass: Pass) {
  lane.passes.push(pass);
  lane.ends.push(timeOf(lane) + pass.ms);
}

/** Milliseconds that a lane has taken so far. */
export const timeOf = (lane: Lane) => lane.ends.at(-1) ?? 0;

/** How many passes of a lane are done at a time. */
export function doneAt({ ends }: Lane, t: number) {
  const next = ends.findIndex((end) => end > t);
  return next < 0 ? ends.length : next;
}

/** The lane as if it had ended at a time. */
export function cutAt(lane: Lane, t: number): Lane {
  const done = doneAt(lane, t);
  return { passes: lane.passes.slice(0, done), ends: lane.ends.slice(0, done), over: true };
}

/** Milliseconds of the first half of the passes, and of as many at the end. */
export function halvesOf({ ends }: Lane) {
  const half = ends.length >> 1;
  const before = ends[ends.length - half - 1] ?? 0;
  return { half, first: ends[half - 1] ?? 0, last: (ends.at(-1) ?? 0) - before };
}

/** Tokens that the first so many passes run. */
export const tokensRun = ({ passes }: Lane, done = passes.length) =>
  passes.slice(0, done).reduce((sum, pass) => sum + pass.tokensRun, 0);

/** Tokens that run without the cache for so many words: the whole text so far, for each. */
export const tokensWithout = (prompt: number, words: number) => words * prompt + (words * (words - 1)) / 2;

export const perToken = (lane: Lane) => timeOf(lane) / tokensRun(lane);

/** Milliseconds of the middle one of the decode steps; null where there is none. */
export function wordTime({ passes }: Lane) {
  const times = passes.filter(({ phase }) => phase === "decode").map(({ ms }) => ms);
  return times.sort((a, b) => a - b)[times.length >> 1] ?? null;
}

/** How many times slower something is shown so that it takes no longer than is wanted; easily said, and never faster.
 * Both are milliseconds. */
export const slower = (ms: number, wanted: number) =>
  FACTORS.findLast((factor) => factor * ms <= wanted) ?? 1;

/**
 * The blocks of a lane, in percent of the clock that both lanes share and of the most tokens that a word runs: a word
 * is as wide as it took and as high as the tokens that ran for it; the one that runs `now` is as wide as yet.
 */
export function blocksAt(
  { lane, plain, prompt, t }: { lane: Lane; plain: Lane; prompt: unknown[]; t: number },
  one: Lane,
  cache: boolean,
) {
  const words = lane.passes.length;
  const clock = plain.over
    ? Math.max(timeOf(lane), timeOf(plain))
    : Math.max(perToken(lane) * tokensWithout(prompt.length, words), timeOf(plain), t);
  const done = doneAt(one, t);
  const going = done < words && !(one.over && done === one.passes.length);
  return Array.from({ length: done + (going ? 1 : 0) }, (_, i) => {
    const [from, to] = [one.ends[i - 1] ?? 0, i < done ? one.ends[i] : t];
    const tokens = cache && i ? 1 : prompt.length + i;
    return {
      left: (100 * from) / clock,
      width: (100 * Math.max(0, to - from)) / clock,
      height: (100 * tokens) / (prompt.length + words - 1),
      now: i === done,
    };
  });
}

/** How many times slower a race for so many words is shown so that it lasts so many milliseconds at most. */
export const paceOf = (lane: Lane, prompt: number, words: number, most: number) =>
  slower(perToken(lane) * tokensWithout(prompt, words), most);

/** The first word that a lane shows when so many are out. */
export const windowAt = (done: number) => ON * Math.max(0, Math.ceil((done - SHOWN) / ON));

/** Bytes of the KV entries of so many tokens in all layers, as the page keeps them. */
export const entryBytes = ({ nLayers, nKvHeads, headDim }: Config, tokens: number) =>
  2 * nLayers * nKvHeads * headDim * BYTES * tokens;

/**
 * The word that most of a token's weight lies on, whose share that is, and whether it was `found`: it is one of those
 * wanted, has more than half of the weight, and stands before the token itself, the last of those weighed.
 */
export function foundBy(weights: ArrayLike<number>, texts: string[], wanted: Set<string>) {
  const shares: Map<string, number> = new Map();
  for (let i = 0; i < weights.length; i++) shares.set(texts[i], (shares.get(texts[i]) ?? 0) + weights[i]);
  const [most, share] = [...shares].reduce((best, one) => (one[1] > best[1] ? one : best));
  const own = texts[weights.length - 1];
  return { most, share, found: share > 0.5 && most !== own && wanted.has(most) };
}

/**
 * What a change did to the KV entries that were kept: by layer how far K or V of each is from what it should be, how
 * many are stale, and how many tokens before the first stale entry of any layer may stay.
 */
export function staleEntries({ k, v }: { k: number[][]; v: number[][] }) {
  const layers = k.map((line, layer) => line.map((far, token) => Math.max(far, v[layer][token])));
  const firsts = layers.map((line) => line.findIndex((far) => far > 0)).filter((first) => first >= 0);
  return {
    layers,
    stale: layers.map((line) => line.filter((far) => far > 0).length),
    kept: Math.min(layers[0].length, ...firsts),
  };
}

/** The tokens of a text as the Worker has cut it. */
export const tokensOf = ({
  tokens,
  texts,
}: {
  tokens: number[];
  texts: string[];
}): { id: number; text: string }[] => tokens.map((id, i) => ({ id, text: texts[i] }));

/** Whether a key pressed in a text means that the model is to go on. */
export const meansGo = ({ key, isComposing, shiftKey, repeat }: KeyboardEvent) =>
  key === "Enter" && !isComposing && !shiftKey && !repeat;
