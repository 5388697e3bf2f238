// An engine's run: in each step who runs, who waits, and whose each page of the pool is. Looked up in its trace, and
// counted; pool.py does the same for the picture.
import VIEW from "../view.json" with { type: "json" };
import { nearest } from "./address.ts";
import { fillText, isolatedText, runningText } from "./format.ts";
import type { EngineTrace, Share, Step } from "./schema";

export type Pool = ReturnType<typeof poolOf>;
export type Moment = ReturnType<typeof momentAt>;
export type Pointed = { request?: number; page?: number };
type Counted = "run" | "found" | "used" | "wasted" | "waiting";

const POOL = VIEW.pool;
const NAMED = 8; // more than this are counted, not named
const WIDEST = 104; // pixels of a page
const LETTER = 8; // pixels of width
export const LETTERS = 12; // and of height that a letter takes
const CHIP = 20; // pixels of height of one that waits
const PATTERNS = 6; // of bands and pages, one after the other
export const COUNTED = Object.keys(POOL.counts) as Counted[];
export const NO_PAGES = ["run", "waiting"] as Counted[]; // where no pages are shown

/** What a page or a lane shows of each request: its id where all of them are that short, else letters. */
function marksOf(requests: EngineTrace["requests"]) {
  const ids = requests.map(({ id }) => id);
  if (new Set(ids).size === ids.length && ids.every((id) => /^[A-Za-z][A-Za-z0-9]?$/.test(id))) return ids;
  return ids.map((_, i) => String.fromCharCode(65 + (i % 26)) + (i < 26 ? "" : Math.floor(i / 26)));
}

/** KV entries of a text's first tokens in the page at a place. */
const entriesIn = (tokens: number, place: number, size: number) =>
  Math.max(0, Math.min(size, tokens - place * size));

function countsOf({ running, waiting }: Step, size: number) {
  const filled: Map<number, number> = new Map();
  const shared = new Set();
  for (const { table, stop } of running)
    table.forEach((page, place) => {
      if (filled.has(page)) shared.add(page);
      filled.set(page, Math.max(filled.get(page) ?? 0, entriesIn(stop, place, size)));
    });
  return {
    run: running.reduce((sum, { start, stop }) => sum + stop - start, 0),
    found: running.reduce((sum, { found }) => sum + found, 0),
    used: filled.size,
    wasted: [...filled.values()].reduce((sum, entries) => sum + size - entries, 0),
    waiting: waiting.length,
    shared: shared.size,
  };
}

/** The times that requests are in a slot, with what they do there; `back`: they were preempted at its end. */
export function staysOf({ requests, steps }: EngineTrace) {
  const reached = requests.map(() => 0);
  const stays: {
    request: number;
    slot: number;
    from: number;
    to: number;
    back: boolean;
    blocks: { kind: string; from: number; to: number }[];
  }[] = [];
  steps.forEach(({ running, preempted }, n) => {
    for (const { request, slot, start, stop, found } of running) {
      const seen = stays.findLast((stay) => stay.request === request);
      const stays_on = seen && seen.to === n && seen.slot === slot && !found && !preempted.includes(request);
      const stay = stays_on ? seen : { request, slot, from: n, to: n, back: false, blocks: [] };
      if (stay !== seen) stays.push(stay);
      const done = start < reached[request] ? "again" : start < requests[request].prompt ? "prompt" : "fresh";
      const kind = stop === start ? "idle" : done;
      const last = stay.blocks.at(-1);
      if (last?.kind === kind) last.to = n + 1;
      else stay.blocks.push({ kind, from: n, to: n + 1 });
      stay.to = n + 1;
      reached[request] = Math.max(reached[request], stop);
    }
    for (const stay of stays) if (stay.to === n && preempted.includes(stay.request)) stay.back = true;
  });
  return stays;
}

/** Whose text has lain in each page, at which place of it, and since which step. */
function heldIn({ steps, n_pages }: EngineTrace) {
  const held = Array.from({ length: n_pages }, () => [{ since: -1, holder: -1, place: 0 }]);
  steps.forEach(({ running }, since) => {
    for (const { request: holder, table } of running)
      table.forEach((page, place) => {
        const last = held[page][held[page].length - 1];
        if (last.holder !== holder || last.place !== place) held[page].push({ since, holder, place });
      });
  });
  return held;
}

/** The trace with what does not change from step to step. */
export function poolOf(trace: EngineTrace) {
  const { requests, steps, page_size } = trace;
  const counts = steps.map((step) => countsOf(step, page_size));
  const stays = staysOf(trace);
  const lanes = 1 + Math.max(0, ...stays.map(({ slot }) => slot));
  return { ...trace, marks: marksOf(requests), counts, stays, lanes, held: heldIn(trace) };
}

/** A count in a step, and until then: the sum of what is done, the most of what is there. */
export function countAt({ counts }: Pool, n: number, what: Counted) {
  const all = counts.slice(0, n + 1).map((one) => one[what]);
  const sum = what === "run" || what === "found";
  return { now: all[n], soFar: sum ? all.reduce((a, b) => a + b, 0) : Math.max(...all), sum };
}

/** Each page in a step: who owns it, its place in their texts, its entries before and after, and whether it was taken
 * anew. What lies in a free page is the text of the last that had it. */
export function momentAt({ steps, held, page_size }: Pool, n: number) {
  const pages = held.map((texts) => {
    const { holder, place } = texts.findLast(({ since }) => since <= n) ?? texts[0];
    const entries = { before: 0, filled: 0, taken: false, findable: false };
    return { owners: [] as number[], holder, place, ...entries };
  });
  const step = steps[n];
  for (const { request, start, stop, table, found } of step.running) {
    const was = steps[n - 1]?.running.find((share) => share.request === request);
    const had = was && !step.preempted.includes(request) ? was.table.length : found / page_size;
    table.forEach((number, place) => {
      const page = pages[number];
      page.owners.push(request);
      page.before = Math.max(page.before, entriesIn(start, place, page_size));
      page.filled = Math.max(page.filled, entriesIn(stop, place, page_size));
      page.taken ||= place >= had;
    });
  }
  for (const number of step.findable)
    if (!pages[number].owners.length) Object.assign(pages[number], { findable: true, filled: page_size });
  return { step, pages };
}

function names({ marks }: Pool, requests: number[]) {
  const named = requests
    .slice(0, NAMED)
    .map((request) => marks[request])
    .join(", ");
  const more = requests.length - NAMED;
  return more > 0 ? fillText(POOL.say.more, { names: named, more }) : named;
}

/** What a step is, in a sentence or some. */
export function poolSentence(pool: Pool, n: number, paged = true) {
  const { running, waiting, preempted, left } = pool.steps[n];
  const { used, shared, found } = pool.counts[n];
  const say = (what: "run" | "idle" | "waiting" | "found" | "sent" | "left", requests: number[]) =>
    requests.length
      ? [fillText(POOL.say[what][Number(requests.length > 1)], { names: names(pool, requests), found })]
      : [];
  const those = (is: (share: Share) => unknown) => running.filter(is).map(({ request }) => request);
  const ran = those(({ start, stop }) => stop > start);
  const who = [
    ...(ran.length ? say("run", ran) : [POOL.say.nobody]),
    ...say(
      "idle",
      those(({ start, stop }) => stop === start),
    ),
    ...say("waiting", waiting),
  ].join("; ");
  const sharing = shared ? fillText(POOL.say.shared, { shared }) : "";
  return [
    fillText(paged ? POOL.say.step : POOL.say.slots, {
      step: n + 1,
      who,
      used,
      pages: pool.n_pages,
      shared: sharing,
    }),
    ...say("sent", preempted),
    ...say(
      "found",
      those((share) => share.found),
    ),
    ...say("left", left),
  ].join(" ");
}

function textOf({ requests }: Pool, request: number, from: number, to: number) {
  const said = runningText(requests[request].tokens.slice(from, to).map((text) => ({ text })));
  return isolatedText(said.map(({ text, blank }, i) => (i && blank ? " " : "") + text).join(""), 60);
}

/** What is pointed at, in words. */
export function pointedAt(pool: Pool, n: number, { step, pages }: Moment, { request, page }: Pointed) {
  const said = POOL.pointed;
  if (page !== undefined) {
    const { owners, holder, place, filled, findable } = pages[page];
    const first = place * pool.page_size;
    const values = { page, entries: filled, size: pool.page_size, from: first + 1, to: first + filled };
    if (!filled || !(owners.length || findable))
      return fillText(said[owners.length ? "empty" : "free"], { page, names: names(pool, owners) });
    const whose = names(pool, findable ? [holder] : owners);
    const text = textOf(pool, holder, first, first + filled);
    return fillText(said[findable ? "findable" : "page"], { ...values, names: whose, text });
  }
  if (request === undefined) return "";
  const { id } = pool.requests[request];
  const name = pool.marks[request] === id ? id : `${pool.marks[request]} (${isolatedText(id, 24)})`;
  const share = step.running.find((one) => one.request === request);
  if (share) {
    const { table, stop } = share;
    return fillText(said.running, { name, entries: stop, table: table.join(", "), of: table.length });
  }
  if (step.waiting.includes(request)) return fillText(said.waiting, { name });
  const came = pool.steps.slice(0, n).some(({ running }) => running.some((one) => one.request === request));
  return fillText(said[came ? "gone" : "coming"], { name });
}

/** A step in words, for who does not see it: each table, and the first free pages that can be found. */
export function describePool(pool: Pool, n: number, moment: Moment) {
  const found = moment.pages.flatMap(({ findable }, page) => (findable ? [{ page }] : []));
  const owners = moment.step.running.map(({ request }) => ({ request }));
  return [...owners, ...found.slice(0, NAMED)].map((about) => pointedAt(pool, n, moment, about));
}

/** Which requests and pages light up with what is pointed at; a page with its number in the table. */
export function litBy({ step, pages }: Moment, about: Pointed | null) {
  const places: Map<number, number> = new Map();
  const { request, page } = about ?? {};
  if (page !== undefined) places.set(page, pages[page].place + 1);
  const share = step.running.find((one) => one.request === request);
  share?.table.forEach((number, place) => places.set(number, place + 1));
  const owners = page === undefined ? [] : pages[page].owners;
  return { requests: new Set(request === undefined ? owners : [request]), places };
}

/** Which of the patterns a request has. */
export const patternOf = (request: number) => request % PATTERNS;

/** Sizes in pixels: of a step and a lane above, of a page below, in so many columns. */
export function poolLayout({ steps, lanes, n_pages, counts }: Pool, width: number) {
  const line = counts.some(({ waiting }) => waiting) ? 50 : 0; // of those who wait
  const lane = Math.max(7, Math.min(30, Math.floor(280 / lanes)));
  const step = Math.max(4, Math.min(60, (width - line) / steps.length));
  const wanted = Math.max(26, Math.min(WIDEST, Math.sqrt((width * 300) / n_pages)));
  const most = Math.max(1, Math.floor(width / wanted));
  const columns = Math.ceil(n_pages / Math.ceil(n_pages / most));
  const page = Math.min(WIDEST, Math.floor(width / columns));
  const scrolls = step * steps.length > width - line + 1;
  return {
    line,
    lane,
    step,
    scrolls,
    page,
    columns,
    high: Math.max(20, Math.min(46, Math.round(page * 0.62))),
  };
}

/** Whether a mark fits in so many pixels of a band. */
export const fitsIn = (mark: string, width: number, lane: number) =>
  lane >= LETTERS && width > LETTER * mark.length + 2;

/** Those who wait in a step, the first on top, as many as there is room for, and how many more; `back`: those of them
 * who ran before. */
export function queueOf({ steps, stays, lanes }: Pool, n: number, lane: number) {
  const { waiting } = steps[n];
  const room = Math.max(1, Math.floor((lane * lanes - 2) / CHIP)); // the axis is as high as the word above
  const shown = waiting.length > room ? waiting.slice(0, room - 1) : waiting;
  const back = shown.filter((request) => stays.some((stay) => stay.request === request && stay.from < n));
  return { shown, back, more: waiting.length - shown.length };
}

/** The steps that have a number on the axis, where a step has so many pixels. */
export function ticksOf({ steps }: Pool, step: number) {
  const every = [1, 2, 5, 10, 20, 50, 100].find((n) => n * step >= 34) ?? 200;
  return [...steps.keys()].filter((n) => n === 0 || (n + 1) % every === 0);
}

/** What a page of so many pixels shows: its state, letters or how many, what is filled from where to where in percent. */
export function pageOf(
  { marks, page_size }: Pool,
  { owners, holder, before, filled, findable }: Moment["pages"][number],
  { page, high }: { page: number; high: number },
) {
  const letters = (findable ? [holder] : owners).map((request) => marks[request]);
  const most = Math.floor((page - 4) / LETTER) * Math.max(1, Math.floor((high - 4) / LETTERS));
  const owned = owners.length > 0;
  const share = (entries: number) => (100 * entries) / page_size;
  return {
    state: owned ? (owners.length > 1 ? "owned shared" : "owned") : findable ? "findable" : "free",
    text: letters.join("").length <= most ? letters.join("\u200b") : `×${letters.length}`,
    filled: owned || findable ? share(filled) : 0,
    fresh: owned && filled > before ? [share(before), share(filled - before)] : null,
  };
}

/** The request that is chosen next; before the first and after the last is none. */
export function nextRequest({ marks }: Pool, request: number | null, by: number) {
  const next = (request ?? (by > 0 ? -1 : marks.length)) + by;
  return next in marks ? next : null;
}

/** The step and the request that an address tells, or the nearest; the names of what is wrong. */
export function poolFrom({ marks, steps }: Pool, values: Map<string, string>, first: number) {
  const { value, fits } = nearest(values.get("step"), 1, steps.length, first + 1);
  const mark = values.get("request");
  const request = mark === undefined ? null : marks.indexOf(mark);
  const wrong = [...(fits ? [] : ["step"]), ...(request === -1 ? ["request"] : [])];
  return { step: (value ?? 1) - 1, request: request === -1 ? null : request, wrong };
}
