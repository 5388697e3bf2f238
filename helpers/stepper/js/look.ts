// What a stepper is turned to: at first, as an address, after a switch. Plain data; nothing here asks the page.
import VIEW from "../view.json" with { type: "json" };
import { nearest } from "./address.ts";
import { caseAtFirst, caseFrom, toldCase, type Case, type Machines } from "./case.ts";
import { hasRun, runOf } from "./frame.ts";
import { headName, headsOf } from "./trace.ts";
import type { Look, TraceRecord } from "./types";

const SAY = VIEW.stepper;
export type Face = "story" | "lab";
export const FACES = ["story", "lab"] as Face[];
/** What is looked at, on which face, in which case; without machines there is no case. */
export type Shown = Look & { chosen: Case; face: Face };
/** What a stepper was made with; `face` is the one at first. Without machines there is no lab. */
type Made = {
  record: TraceRecord;
  machines: Machines | null;
  face: Face;
  options: { start: number; layer: number; head?: number | null };
};

/** How a face is at first: the lab at Training, with a prompt long enough for the bound to move. */
export function shownAtFirst({ record, machines, options, face: own }: Made, face: Face): Shown {
  const counted = record.runs[0].events.findIndex((one) => one.counted);
  const event = face === own ? options.start : face === "lab" ? 0 : counted;
  const cached = record.withCache !== null;
  const look = { layer: options.layer, head: options.head ?? null, row: null, ahead: false };
  const chosen = (machines &&
    caseAtFirst(machines, { tokens: face === "lab" ? VIEW.lab.tokens : null })) as Case;
  return { face, event, cached, ...look, chosen };
}

/** What changes with the face: what is as at first on the one goes to what it is at first on the other. */
export function turnedTo(made: Made, { face: before, event, cached, chosen }: Shown, face: Face) {
  const [from, to] = [before, face].map((one) => shownAtFirst(made, one));
  const begins = event === from.event && cached === from.cached;
  const tokens = chosen.tokens === from.chosen.tokens ? to.chosen.tokens : chosen.tokens;
  return { face, event: begins ? to.event : event, chosen: { ...chosen, tokens } };
}

/** All of it by the names of an address, counted from 1. */
function allOf({ event, cached, layer, head, row, ahead, chosen }: Shown, machines: Machines | null) {
  const told: Record<string, string | number | null> = {
    pass: event + 1,
    cache: cached ? "on" : "off",
    layer: layer + 1,
    head: head === null ? "mean" : head + 1,
    line: row === null ? null : row + 1,
    mask: ahead ? "off" : "on",
  };
  return machines ? { ...told, ...toldCase(chosen, machines) } : told;
}

/** What an address tells of it: null for what is as at first on its face. */
export function toldShown(made: Made, shown: Shown) {
  const { face } = shown;
  const [told, first] = [shown, shownAtFirst(made, face)].map((one) => allOf(one, made.machines));
  for (const name of Object.keys(told)) if (told[name] === first[name]) told[name] = null;
  return { ...told, panels: face === made.face ? null : face };
}

/** What an address tells, or as near as there is; the names of what is not as it should be go to `wrong`. */
export function shownFrom(made: Made, values: Map<string, string>, wrong: string[]): Shown {
  const { record, machines } = made;
  const asked = values.get("panels");
  const face = (machines && FACES.find((one) => one === asked)) ?? made.face;
  if (asked !== undefined && face !== asked) wrong.push("panels");
  const first = shownAtFirst(made, face);
  const atFirst = allOf(first, machines) as Record<string, any>;
  const nearestOf = (name: string, indices: number[], otherwise: any): any => {
    const { value, fits } = nearest(values.get(name), 1, Math.max(...indices) + 1, otherwise);
    if (value === null && fits) return null;
    const near = (i: number) => Math.abs(i + 1 - (value ?? 0));
    const found = value === null ? null : indices.reduce((a, b) => (near(b) < near(a) ? b : a));
    if (!fits || near(found ?? -1)) wrong.push(name);
    return found;
  };
  const isOn = (name: string, known: { on: unknown; off: unknown }) => {
    const told = values.get(name);
    const knows = (told === "on" || told === "off") && known[told];
    if (told !== undefined && !knows) wrong.push(name);
    return (knows ? told : atFirst[name]) === "on";
  };
  const cached = isOn("cache", { on: record.withCache, off: record.withoutCache });
  const ahead = !isOn("mask", { on: true, off: face === "lab" });
  const run = runOf(record, cached);
  const event = nearestOf("pass", [...run.events.keys()], atFirst.pass);
  const layer = nearestOf("layer", record.layers, atFirst.layer);
  const mean = (values.get("head") ?? atFirst.head) === "mean";
  const otherwise = atFirst.head === "mean" ? null : atFirst.head;
  const head = mean ? null : nearestOf("head", headsOf(record, layer), otherwise);
  const there = [...record.tokens.keys()].filter((i) => hasRun(run, run.events[event], i));
  const row = there.length ? nearestOf("line", there, null) : null;
  const recorded = values.get("text") === "recorded" ? { tokens: null } : {}; // also where it is not so at first
  const chosen = machines
    ? caseFrom(values, machines, { ...first.chosen, ...recorded }, wrong)
    : first.chosen;
  return { face, cached, event, layer, head, row, ahead, chosen };
}

/** What a picture shows, by the names of an address: prefill, a step with the cache and, in the story, one without
 * it; before them training, where it begins there. */
export function stillsOf(record: TraceRecord, { face, event }: Pick<Shown, "face" | "event">) {
  const { events, keeps } = runOf(record, record.withCache !== null);
  const first = events.findIndex((one) => one.counted);
  const told = (at: number, cached = keeps) => ({ pass: at + 1, cache: cached ? "on" : "off" });
  const inLab = face === "lab";
  const shown = inLab || event < first ? [...events.keys()].slice(0, first + 2) : [first, first + 1];
  const plain = keeps && record.withoutCache && !inLab ? [told(first + 1, false)] : [];
  return [...shown.map((at) => told(at)), ...plain].filter(({ pass }) => pass <= events.length);
}

/** What can be switched in this trace: the names of each switch, which is chosen (-1: none), which can be, and what
 * each changes. `head` is the one that is shown. */
export function switchesOf(record: TraceRecord, shown: Shown, head: number | null) {
  const { layers } = record;
  const known = [...new Set(record.recorded.map(([, head]) => head))].sort((a, b) => a - b);
  const heads = known.length > 1 ? [null, ...known] : []; // of all layers: it stays as it is
  const there = headsOf(record, shown.layer);
  const nameOf = (head: number | null) =>
    head === null || record.model.head_names ? headName(record, head) : String(head + 1);
  const onOff = (there: unknown) => (there ? SAY["on or off"] : []);
  const all: {
    names: string[];
    chosen: number;
    to: (i: number) => Partial<Shown>;
    allowed?: (i: number) => boolean;
  }[] = [
    {
      ...{ names: layers.map((one) => String(one + 1)), chosen: layers.indexOf(shown.layer) },
      to: (i) => ({ layer: layers[i] }),
    },
    {
      ...{ names: heads.map(nameOf), chosen: heads.indexOf(head) },
      to: (i) => ({ head: heads[i] }),
      allowed: (i) => heads[i] === null || there.includes(heads[i]),
    },
    {
      ...{ names: onOff(record.withCache && record.withoutCache), chosen: shown.cached ? 0 : 1 },
      to: (i) => ({ cached: i === 0 }),
    },
    {
      ...{ names: onOff(shown.face === "lab"), chosen: shown.ahead ? 1 : 0 },
      to: (i) => ({ ahead: i === 1 }),
    },
  ];
  return all.map((one, i) => ({ label: SAY.switches[i], ...one })).filter(({ names }) => names.length > 1);
}

/** The first and the last of so many passes, and every so many of a dozen between them. */
export function sampled(many: number) {
  const every = Math.ceil(many / 12);
  return [...Array(many).keys()].filter((i) => i < 3 || i >= many - 2 || (i - 3) % every === 0);
}
