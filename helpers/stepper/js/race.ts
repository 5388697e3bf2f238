// The race: the same words twice on one clock, with the cache and without. A pass lasts as long as the positions
// it runs, so that time is counted in positions; everything is looked up in the trace.
import VIEW from "../view.json" with { type: "json" };
import { fillText } from "./format.ts";
import { sizeOf } from "./trace.ts";
import type { Run, TraceRecord } from "./types";

export type Lane = ReturnType<typeof laneOf>;
export type Race = ReturnType<typeof raceOf>;
export type Stage = "start" | "pause" | "drip" | "ahead" | "done";

const RACE = VIEW.race;
const RACE_SECONDS = 12; // at speed 1, however long the run
const SLOW_SECONDS = 4.5; // a slow start: until the cached run is done
export const SLACK = 1e-9; // 23.999999999 positions are 24

/** A run as a lane: its passes one behind another, the words that each gave, the positions run again. */
function laneOf(run: Run) {
  let end = 0;
  const legs = run.events
    .filter((event) => event.counted)
    .map(({ counts: { positions }, phase, part }) => {
      const words = part.out.map((out) => out.chosen);
      end += positions;
      const again = sizeOf(part.repeated);
      return { start: end - positions, end, positions, prefill: phase === "prefill", words, again };
    });
  const words = legs.flatMap((leg) => leg.words);
  return { legs, end, words, again: legs.reduce((total, leg) => total + leg.again, 0) };
}

/** Both runs of a record as lanes, cached first, on one clock. */
export function raceOf(record: TraceRecord) {
  const lanes = ([record.withCache, record.withoutCache] as Run[]).map(laneOf);
  return { lanes, prompt: record.prompt, clock: lanes[1].end };
}

/** A lane at a time in positions: passes done, the share of the one in progress, counts and words so far. */
export function laneAt(lane: Lane, t: number) {
  const done = lane.legs.filter((leg) => leg.end <= t + SLACK);
  const leg = lane.legs[done.length];
  const share = leg ? Math.max(0, t - leg.start) / leg.positions : 0;
  return {
    passes: done.length,
    share: share < SLACK ? 0 : share,
    positions: Math.floor(Math.max(0, Math.min(t, lane.end)) + SLACK),
    words: done.reduce((sum, one) => sum + one.words.length, 0),
  };
}

/** Which sentence a time has: start, pause (no word yet), drip, ahead (the cached run is done), done. */
export function stageOf(race: Race, t: number): Stage {
  if (t <= 0) return "start";
  if (t >= race.clock - SLACK) return "done";
  if (t >= race.lanes[0].end - SLACK) return "ahead";
  return race.lanes.some((lane) => laneAt(lane, t).words) ? "drip" : "pause";
}

/** When a lane's first word is out. */
function firstWord({ legs, end }: Lane) {
  return legs.find((leg) => leg.words.length)?.end ?? end;
}

/** What a stage says: one sentence, the same as long as the stage lasts. */
export function raceSentence({ lanes, prompt }: Race, stage: Stage) {
  const [cached, plain] = lanes;
  const [one, whole] = lanes.map(
    (lane) => lane.legs.find((leg) => leg.start >= firstWord(lane))?.positions ?? 0,
  );
  const out = laneAt(plain, cached.end).words;
  const others = { positions: cached.end, all: plain.end, again: plain.again };
  const values = { prompt, one, whole, out, words: cached.words.length, ...others };
  return fillText(RACE.say[stage], values);
}

/** Times at which a pass of either lane ends, and the start. */
export function momentsOf(race: Race) {
  const ends = race.lanes.flatMap((lane) => lane.legs.map((leg) => leg.end));
  return [...new Set([0, ...ends])].sort((a, b) => a - b);
}

/** The time that an address tells, none being 0; NaN for what is no time. */
export const timeFrom = (text = "0") => (/^-?\d*\.?\d+$/.test(text) ? Number(text) : NaN);

/** The next moment in a direction: where a pass of either lane ends. */
export function momentAfter(race: Race, t: number, by: number) {
  const moments = momentsOf(race);
  return by > 0
    ? (moments.find((moment) => moment > t + SLACK) ?? race.clock)
    : (moments.findLast((moment) => moment < t - SLACK) ?? 0);
}

/** Whether word n of a lane is out when so many are, is the next, or has yet to come. */
export const wordState = (n: number, out: number, t: number) =>
  n < out ? "out" : n === out && t > 0 ? "next" : "";

/** Where Play stops when nothing may move: what matters first, then quarters of the clock. */
export function stopsOf({ lanes, clock }: Race) {
  const stops = [firstWord(lanes[0]), lanes[0].end, clock / 4, clock / 2, (3 * clock) / 4, clock];
  return [...new Set(stops)].sort((a, b) => a - b);
}

/** Positions a second at a time; speed 0 starts slowly, until the cached run is done. */
export function paceAt({ lanes, clock }: Race, t: number, speed: number) {
  const pace = clock / RACE_SECONDS;
  if (speed > 0) return pace * speed;
  return t < lanes[0].end ? Math.min(pace, lanes[0].end / SLOW_SECONDS) : pace;
}
