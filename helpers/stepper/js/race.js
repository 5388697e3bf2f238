// The race: the same words twice on one clock, with the cache and without. A pass lasts as long as the positions
// it runs, so that time is counted in positions; everything is looked up in the trace.
import VIEW from "../view.json" with { type: "json" };
import { clippedText, fillText, runningText, visibleText } from "./format.js";
import { readTrace, sizeOf } from "./trace.js";
import { make, makeButton, makeWith, Segments, setText, textWidths, wordNode } from "./dom.js";
import { View } from "./view.js";

const RACE = VIEW.race;
const RACE_SECONDS = 12; // at speed 1, however long the run
const SLOW_SECONDS = 4.5; // a slow start: until the cached run is done
const STILL_EVERY = 1200; // milliseconds from stop to stop where nothing may move
const SLACK = 1e-9; // 23.999999999 positions are 24
const LEAST = 4; // pixels: blocks narrower than this have no gap between them

/** A run as a lane: its passes one behind another, the words that each gave, the positions run again. */
function laneOf(run) {
  let end = 0;
  const legs = run.events
    .filter((event) => event.counted)
    .map(({ raw, phase, part }) => {
      const { positions, pairs } = raw.counts;
      const again = raw.parts.reduce((sum, one) => sum + sizeOf(one.repeated), 0);
      const words = (part?.out ?? []).map((out) => out.chosen);
      end += positions;
      return { start: end - positions, end, positions, pairs, again, prefill: phase === "prefill", words };
    });
  const sum = (name) => legs.reduce((total, leg) => total + leg[name], 0);
  const words = legs.flatMap((leg) => leg.words);
  return { legs, end, words, positions: end, pairs: sum("pairs"), again: sum("again") };
}

/** Both runs of a record as lanes, cached first, on one clock. */
export function raceOf(record) {
  const lanes = [record.withCache, record.withoutCache].map(laneOf);
  const same = String(lanes[0].words) === String(lanes[1].words);
  return { lanes, same, prompt: record.prompt, clock: Math.max(...lanes.map((lane) => lane.end)) };
}

/** A lane at a time in positions: passes done, the share of the one in progress, counts and words so far. */
export function laneAt(lane, t) {
  const done = lane.legs.filter((leg) => leg.end <= t + SLACK);
  const leg = lane.legs[done.length];
  const share = leg ? Math.max(0, t - leg.start) / leg.positions : 0;
  const pairs = done.reduce((sum, one) => sum + one.pairs, share * (leg?.pairs ?? 0));
  return {
    passes: done.length,
    share: share < SLACK ? 0 : share,
    positions: Math.floor(Math.max(0, Math.min(t, lane.end)) + SLACK),
    pairs: Math.floor(pairs + SLACK),
    words: done.reduce((sum, one) => sum + one.words.length, 0),
  };
}

/** Which sentence a time has: start, pause (no word yet), drip, ahead (the cached run is done), done. */
export function stageOf(race, t) {
  if (t <= 0) return "start";
  if (t >= race.clock - SLACK) return "done";
  if (t >= race.lanes[0].end - SLACK) return "ahead";
  return race.lanes.some((lane) => laneAt(lane, t).words) ? "drip" : "pause";
}

function firstWord(lane) {
  return (lane.legs.find((leg) => leg.words.length) ?? lane.legs.at(-1)).end;
}

/** What a stage says: one sentence, the same as long as the stage lasts. */
export function raceSentence({ lanes, prompt, same }, stage) {
  const [cached, plain] = lanes;
  const [one, whole] = lanes.map(
    (lane) => lane.legs.find((leg) => leg.start >= firstWord(lane))?.positions ?? 0,
  );
  const { positions, pairs, words } = cached;
  const others = { all: plain.end, all_pairs: plain.pairs, again: plain.again };
  const values = { prompt, one, whole, words: words.length, positions, pairs, ...others };
  values.out = laneAt(plain, cached.end).words;
  return fillText(RACE.say[stage === "done" && !same ? "apart" : stage], values);
}

/** Times at which a pass of either lane ends, and the start. */
export function momentsOf(race) {
  const ends = race.lanes.flatMap((lane) => lane.legs.map((leg) => leg.end));
  return [...new Set([0, ...ends])].sort((a, b) => a - b);
}

/** Where Play stops when nothing may move: what matters first, then quarters of the clock. */
export function stopsOf({ lanes, clock }) {
  const stops = [firstWord(lanes[0]), lanes[0].end, clock / 4, clock / 2, (3 * clock) / 4, clock];
  return [...new Set(stops)].sort((a, b) => a - b);
}

/** Positions a second at a time; speed 0 starts slowly, until the cached run is done. */
export function paceAt({ lanes, clock }, t, speed) {
  const pace = clock / RACE_SECONDS;
  if (speed > 0) return pace * speed;
  return t < lanes[0].end ? Math.min(pace, lanes[0].end / SLOW_SECONDS) : pace;
}

export class RaceView extends View {
  constructor(el, data, options) {
    const record = readTrace(data);
    super(el, options, "race", fillText(RACE.label, { model: record.model.name }));
    this.race = raceOf(record);
    this.tokens = record.tokens;
    this.t = 0;
    this.speed = 0;
    this.playing = false;
    this.build(record);
    this.root.addEventListener("keydown", (event) => this.pressed(event));
    this.start();
  }

  state() {
    return { race: this.t > 0 ? Number((this.t / this.race.clock).toFixed(3)) : null };
  }

  goTo(values) {
    const text = values.get("race") ?? "0";
    const share = /^-?\d*\.?\d+$/.test(text) ? Number(text) : NaN;
    this.moveTo((share || 0) * this.race.clock);
    return share >= 0 && share <= 1 ? null : fillText(VIEW.labels["no such"], { names: "race" });
  }

  build(record) {
    const title = make("p", "wid-prompt-title soft", fillText(RACE.prompt, { prompt: record.prompt }));
    const prompt = this.wordNodes([...record.tokens.keys()].slice(0, record.prompt));
    this.lanes = this.race.lanes.map((lane, i) => this.buildLane(lane, RACE.lanes[i]));
    this.root.append(this.buildControls(), title, makeWith("p", "wid-text-so-far", prompt));
    this.root.append(...this.lanes.map((lane) => lane.node), this.buildClock(), this.buildSentence());
  }

  buildControls() {
    this.play = makeButton(RACE.play, "wid-go", () => this.togglePlay());
    const names = RACE.speeds.map(([name]) => name);
    this.speeds = new Segments("Speed", names, (i) => this.setSpeed(i));
    this.setSpeed(0);
    const items = Object.entries(RACE.legend).map(([kind, name]) =>
      makeWith("li", "", [make("i", `wid-block ${kind}`), name]),
    );
    const buttons = makeWith("div", "wid-buttons", [this.play]);
    return makeWith("div", "wid-controls", [buttons, this.speeds.node, makeWith("ul", "wid-legend", items)]);
  }

  setSpeed(i) {
    this.speed = RACE.speeds[i][1];
    this.speeds.press(i);
  }

  /** Nodes of tokens as running text. */
  wordNodes(indices) {
    const running = runningText(this.tokens);
    return indices.flatMap((index, n) => {
      const { text, blank } = running[index];
      const word = wordNode(clippedText(text), visibleText(text));
      return n && blank ? [" ", word] : [word];
    });
  }

  buildLane(lane, name) {
    const counters = ["positions", "pairs"].map((what) => {
      const most = Math.max(...this.race.lanes.map((one) => one[what])).toLocaleString("en");
      return { what, number: makeWith("b", "", [], { style: `min-width:${most.length}ch` }) };
    });
    const counts = counters.map(({ what, number }) =>
      makeWith("span", "wid-counter", [number, ` ${RACE[what]}`]),
    );
    const head = makeWith("div", "wid-lanehead", [make("h3", "", name), ...counts]);
    const reply = makeWith("p", "wid-reply", this.wordNodes(lane.words));
    const end = `${(100 * lane.end) / this.race.clock}%`;
    // The passes as blocks, twice: pale, and over it what is done, cut at the time.
    const [coming, done] = ["wid-legs coming", "wid-legs"].map((kind) =>
      makeWith(
        "div",
        kind,
        lane.legs.map((leg) => legNode(leg, lane.end)),
        { style: `width:${end}` },
      ),
    );
    const note = makeWith("span", "wid-note", [], { style: `left:${end}` });
    const track = makeWith("div", "wid-track", [coming, done, note], { "aria-hidden": "true" });
    const node = makeWith("section", "wid-lane", [head, reply, track], { "aria-label": name });
    return { lane, node, counters, words: [...reply.children], out: 0, track, done, note };
  }

  buildClock() {
    const { clock } = this.race;
    const range = { type: "range", min: 0, max: clock, step: "any", "aria-label": RACE.clock };
    this.slider = makeWith("input", "", [], range);
    this.slider.addEventListener("input", () => this.scrub(Number(this.slider.value)));
    const words = [RACE.axis, fillText("{clock}", { clock })].map((text) => make("span", "", text));
    return makeWith("div", "wid-clock", [this.slider, makeWith("p", "wid-axis soft", words)]);
  }

  buildSentence() {
    this.sentence = makeWith("p", "wid-sentence", [], { "aria-live": "polite" });
    const sizers = Object.keys(RACE.say).map((stage) =>
      makeWith("p", "wid-sizer", [raceSentence(this.race, stage)], { "aria-hidden": "true" }),
    );
    return makeWith("div", "wid-say", [this.sentence, ...sizers]);
  }

  pressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const { t, race } = this;
    const moments = momentsOf(race);
    const acts = {
      ArrowRight: () => this.scrub(moments.find((moment) => moment > t + SLACK) ?? race.clock),
      ArrowLeft: () => this.scrub(moments.findLast((moment) => moment < t - SLACK) ?? 0),
      Home: () => this.scrub(0),
      End: () => this.scrub(race.clock),
    };
    if (event.target.tagName !== "BUTTON") acts[" "] = () => this.togglePlay();
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  }

  scrub(t) {
    this.moveTo(t);
    this.keepAddress();
  }

  togglePlay() {
    if (this.playing) return this.stop();
    if (this.t >= this.race.clock) this.moveTo(0);
    this.playing = true;
    this.before = performance.now();
    setText(this.play, RACE.pause);
    this.playOn(this.before);
  }

  /** One frame, or one stop where nothing may move. A page out of sight has no frames and goes on later. */
  playOn(now) {
    if (!this.playing) return;
    if (!this.root.isConnected) return this.stop();
    const seconds = Math.min(100, now - this.before) / 1000;
    const still = this.still.matches;
    this.before = now;
    this.moveTo(
      still
        ? stopsOf(this.race).find((stop) => stop > this.t + SLACK)
        : this.t + Math.max(0, seconds) * paceAt(this.race, this.t, this.speed),
    );
    if (this.t >= this.race.clock) this.stop();
    else if (still) this.waiting = setTimeout(() => this.playOn(now), STILL_EVERY);
    else requestAnimationFrame((later) => this.playOn(later));
  }

  stop() {
    clearTimeout(this.waiting);
    this.playing = false;
    setText(this.play, RACE.play);
    this.scrub(this.t);
  }

  draw() {
    this.colours();
    const [cached, plain] = this.race.lanes;
    for (const { lane, track } of this.lanes) {
      const least = Math.min(...lane.legs.map((leg) => leg.positions));
      track.classList.toggle("fine", (least * this.width) / this.race.clock < LEAST);
    }
    const room = this.width * (1 - cached.end / this.race.clock) - 14;
    const values = { positions: cached.end, all: plain.end };
    const notes = RACE.instead.map((template) => fillText(template, values));
    const { fontWeight, fontSize, fontFamily } = getComputedStyle(this.lanes[0].note);
    const widths = textWidths(notes, `${fontWeight} ${fontSize} ${fontFamily}`);
    setText(this.lanes[0].note, notes.find((_, i) => widths[i] < room) ?? "");
    this.moveTo(this.t);
  }

  /** Go to a time; leaves performance entries named "wid-frame". */
  moveTo(t) {
    const started = performance.now();
    const { race } = this;
    this.t = Math.max(0, Math.min(race.clock, t));
    for (const lane of this.lanes) showLane(lane, this.t);
    const stage = stageOf(race, this.t);
    this.root.dataset.stage = stage;
    this.root.style.setProperty("--wid-at", `${(100 * this.t) / race.clock}%`);
    setText(this.sentence, raceSentence(race, stage));
    this.slider.value = this.t;
    const at = fillText(RACE.at, { t: Math.floor(this.t + SLACK), end: race.clock });
    if (!this.playing) this.slider.setAttribute("aria-valuetext", at);
    performance.measure("wid-frame", { start: started, end: performance.now() });
  }

  destroy() {
    this.stop();
    super.destroy();
  }
}

/** A pass as long as its positions: first what is run again, then what is new. */
function legNode({ positions, again, prefill }, all) {
  const kinds = Object.entries({ again, [prefill ? "prompt" : "fresh"]: positions - again });
  const blocks = kinds
    .filter(([, length]) => length > 0)
    .map(([kind, length]) => makeWith("i", `wid-block ${kind}`, [], { style: `flex-grow:${length}` }));
  return makeWith("div", "wid-leg", blocks, { style: `width:${(100 * positions) / all}%` });
}

function showLane(shown, t) {
  const { lane, counters, words, done, node } = shown;
  const at = laneAt(lane, t);
  for (const { what, number } of counters) setText(number, at[what].toLocaleString("en"));
  for (; shown.out < at.words; shown.out++) words[shown.out].classList.add("out");
  while (shown.out > at.words) words[--shown.out].classList.remove("out");
  words.forEach((word, i) => word.classList.toggle("next", i === at.words && t > 0));
  done.style.clipPath = `inset(0 ${100 * Math.max(0, 1 - t / lane.end)}% 0 0)`;
  node.classList.toggle("over", t >= lane.end - SLACK);
}
