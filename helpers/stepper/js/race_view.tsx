// Draws the race: two lanes with their words, one clock, and what a moment means.
import VIEW from "../view.json" with { type: "json" };
import { fillText, runningText } from "./format.ts";
import { textWidths } from "./dom.ts";
import { Button, Legend, Picker, Sentence, Slider, Word } from "./parts.tsx";
import { laneAt, momentAfter, paceAt, raceOf, raceSentence, SLACK } from "./race.ts";
import { stageOf, stopsOf, timeFrom, wordState } from "./race.ts";
import { readTrace } from "./trace.ts";
import { View } from "./view.tsx";
import type { Lane, Race, Stage } from "./race.ts";
import type { Trace } from "./schema";
import type { ComponentChild } from "preact";

const RACE = VIEW.race;
const STAGES = Object.keys(RACE.say) as Stage[];
const SPEEDS = RACE.speeds as [string, number][];
const STILL_EVERY = 1200; // milliseconds from stop to stop where nothing may move
const LEAST = 4; // pixels: blocks narrower than this have no gap between them

export class RaceView extends View {
  declare race: Race;
  declare running: ReturnType<typeof runningText>;
  declare prompt: ComponentChild;
  declare tracks: ComponentChild[][];
  declare notes: string[];
  declare t: number;
  declare speed: number;
  declare playing: boolean;
  declare before: number;
  declare spoken: string;
  declare waiting: number | undefined;

  constructor(el: Element, data: Trace, options: any) {
    const record = readTrace(data);
    super(el, options, "race", fillText(RACE.label, { model: record.model.name }));
    this.race = raceOf(record);
    this.running = runningText(record.tokens);
    this.prompt = (
      <p class="wid-text-so-far">{this.words([...record.tokens.keys()].slice(0, record.prompt))}</p>
    );
    this.tracks = this.race.lanes.map((lane) => lane.legs.map((leg) => <Leg leg={leg} all={lane.end} />));
    this.notes = ["", ""]; // what stands behind a lane that is done
    this.t = 0;
    this.speed = 0; // an index of the speeds
    this.playing = false;
    this.before = 0; // when the last frame was
    this.spoken = "";
    this.start();
  }

  state() {
    return { race: this.t > 0 ? Number(this.t.toFixed(2)) : null }; // tokens processed, so that no moment is rounded away
  }

  goTo(values: Map<string, string>) {
    const t = timeFrom(values.get("race"));
    this.moveTo(t || 0);
    return t >= 0 && t <= this.race.clock ? [] : ["race"];
  }

  /** The moment when the run with the cache is done. */
  stills() {
    return [{ race: this.race.lanes[0].end }];
  }

  /** Tokens as running text; of a reply those from `out` on have yet to come. */
  words(indices: number[], out?: number) {
    return indices.map((index, n) => {
      const { text, blank } = this.running[index];
      const state = out === undefined ? "" : wordState(n, out, this.t);
      return [n > 0 && blank && " ", text && <Word text={text} class={`wid-word ${state}`} />];
    });
  }

  keyAction({ key, target }: KeyboardEvent & { target: any }) {
    const { t, race } = this;
    const acts: Record<string, () => void> = {
      ArrowRight: () => this.scrub(momentAfter(race, t, 1)),
      ArrowLeft: () => this.scrub(momentAfter(race, t, -1)),
      Home: () => this.scrub(0),
      End: () => this.scrub(race.clock),
      ...(target.tagName !== "BUTTON" && { " ": () => this.togglePlay() }),
    };
    return acts[key];
  }

  scrub(t: number) {
    this.advice = null; // drawn with the move; the address tells where that led
    this.moveTo(t);
    this.keepAddress();
  }

  togglePlay() {
    if (this.playing) return this.stop();
    if (this.t >= this.race.clock) this.moveTo(0);
    this.playing = true;
    this.comeIntoSight();
    this.before = performance.now();
    this.playOn(this.before);
  }

  /** One frame, or one stop where nothing may move. A page out of sight has no frames and goes on later. */
  playOn(now: number) {
    if (!this.playing) return;
    if (!this.root.isConnected) return this.stop();
    const seconds = Math.min(100, now - this.before) / 1000;
    const still = this.still.matches;
    this.before = now;
    const pace = paceAt(this.race, this.t, SPEEDS[this.speed][1]);
    const stop = stopsOf(this.race).find((stop) => stop > this.t + SLACK);
    this.moveTo(still && stop ? stop : this.t + Math.max(0, seconds) * pace);
    if (this.t >= this.race.clock) this.stop();
    else if (still) this.waiting = setTimeout(() => this.playOn(now), STILL_EVERY);
    else requestAnimationFrame((later) => this.playOn(later));
  }

  stop() {
    clearTimeout(this.waiting);
    this.playing = false;
    this.scrub(this.t);
  }

  /** Go to a time. */
  moveTo(t: number) {
    this.t = Math.max(0, Math.min(this.race.clock, t));
    super.draw();
  }

  draw() {
    super.draw();
    if (this.width <= 0) return;
    this.notes = [this.noteThatFits(), ""];
    super.draw();
  }

  /** What stands behind the cached lane when it is done, as long as there is room for. */
  noteThatFits() {
    const [cached, plain] = this.race.lanes;
    const room = this.width * (1 - cached.end / this.race.clock) - 14;
    const notes = RACE.instead.map((one) => fillText(one, { positions: cached.end, all: plain.end }));
    const { fontWeight, fontSize, fontFamily } = getComputedStyle(
      this.root.querySelector(".wid-note") as Element,
    );
    const widths = textWidths(notes, `${fontWeight} ${fontSize} ${fontFamily}`);
    return notes.find((_, i) => widths[i] < room) ?? "";
  }

  template() {
    const { race, t } = this;
    const { clock } = race;
    const stage = stageOf(race, t);
    this.root.dataset.stage = stage;
    this.root.style.setProperty("--wid-at", `${(100 * t) / clock}%`);
    const blocks = Object.entries(RACE.legend).map(([kind, name]) => [`wid-block ${kind}`, "", name]);
    if (!this.playing) this.spoken = fillText(RACE.at, { t: Math.floor(t + SLACK), end: clock });
    return (
      <>
        <div class="wid-controls">
          <div class="wid-buttons">
            <Button class="wid-go" onClick={() => this.togglePlay()}>
              {this.playing ? RACE.pause : RACE.play}
            </Button>
          </div>
          <Picker
            {...{ label: RACE.speed, names: SPEEDS.map(([name]) => name), chosen: this.speed }}
            choose={(i) => {
              this.speed = i;
              super.draw();
            }}
          />
          <Legend items={blocks} />
        </div>
        <p class="wid-prompt-title soft">{fillText(RACE.prompt, { prompt: race.prompt })}</p>
        {this.prompt}
        {race.lanes.map((lane, i) => this.lane(lane, i))}
        <div class="wid-clock">
          <Slider
            {...{ min: 0, max: clock, step: "any", value: t }}
            aria-label={RACE.clock}
            aria-valuetext={this.spoken}
            onInput={(e) => this.scrub(Number(e.currentTarget.value))}
          />
          <p class="wid-axis soft">
            <span>{RACE.axis}</span>
            <span>{fillText("{clock}", { clock })}</span>
          </p>
        </div>
        <Sentence
          parts={[raceSentence(race, stage)]}
          longest={STAGES.map((one) => [raceSentence(race, one)])}
        />
      </>
    );
  }

  lane(lane: Lane, i: number) {
    const { t } = this;
    const { clock } = this.race;
    const at = laneAt(lane, t);
    const end = `${(100 * lane.end) / clock}%`;
    const most = clock.toLocaleString("en").length;
    const least = Math.min(...lane.legs.map((leg) => leg.positions));
    const cut = `inset(0 ${100 * Math.max(0, 1 - t / lane.end)}% 0 0)`;
    // The passes as blocks, twice: pale, and over it what is done, cut at the time.
    return (
      <section class={`wid-lane ${t >= lane.end - SLACK ? "over" : ""}`} aria-label={RACE.lanes[i]}>
        <div class="wid-lanehead">
          <h3>{RACE.lanes[i]}</h3>
          <span class="wid-counter">
            <b style={`min-width:${most}ch`}>{at.positions.toLocaleString("en")}</b>
            {` ${RACE.positions}`}
          </span>
        </div>
        <p class="wid-reply">{this.words(lane.words, at.words)}</p>
        <div class={`wid-track ${(least * this.width) / clock < LEAST ? "fine" : ""}`} aria-hidden="true">
          <div class="wid-legs coming" style={`width:${end}`}>
            {this.tracks[i]}
          </div>
          <div class="wid-legs" style={`width:${end};clip-path:${cut}`}>
            {lane.legs.map((leg) => (
              <Leg leg={leg} all={lane.end} />
            ))}
          </div>
          <span class="wid-note" style={`left:${end}`}>
            {this.notes[i]}
          </span>
        </div>
      </section>
    );
  }
}

/** A pass as long as its positions: first what is run again, then what is new. */
function Leg({ leg: { positions, again, prefill }, all }: { leg: Lane["legs"][number]; all: number }) {
  const block = (kind: string, many: number) =>
    many > 0 && <i class={`wid-block ${kind}`} style={`flex-grow:${many}`} />;
  return (
    <div class="wid-leg" style={`width:${(100 * positions) / all}%`}>
      {block("again", again)}
      {block(prefill ? "prompt" : "fresh", positions - again)}
    </div>
  );
}
