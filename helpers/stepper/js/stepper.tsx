// The stepper itself: one state for each view, controls, keys, and drawing a pass.
import VIEW from "../view.json" with { type: "json" };
import { isMore, type Case, type Field, type Machines } from "./case.ts";
import { fillText } from "./format.ts";
import { readTrace } from "./trace.ts";
import { frameOf, hasRun, runOf } from "./frame.ts";
import { fittingRail, railLabel, WINDOW } from "./geometry.ts";
import {
  FACES,
  sampled,
  shownAtFirst,
  shownFrom,
  stillsOf,
  switchesOf,
  toldShown,
  turnedTo,
} from "./look.ts";
import { Played } from "./played.tsx";
import { Button, Picker, Sentence, Slider, Switch } from "./parts.tsx";
import { pointedAt } from "./links.ts";
import { animateStep } from "./motion.ts";
import { Board } from "./board.tsx";
import { Ribbon } from "./ribbon.tsx";
import { Below, BoardLegend, Foot, Held } from "./panels.tsx";
import { Accumulators, Bound, BoundLine, Formula, Length, Shapes } from "./lab_view.tsx";
import { CaseControls } from "./step_panel.tsx";
import { aheadSentence, describe, plainSentence, sentenceOf } from "./words.ts";
import type { Face, Shown } from "./look.ts";
import type { About, Frame, Parts, TraceRecord } from "./types";
import type { Trace } from "./schema";

const SAY = VIEW.stepper;
const MORE: Field[] = ["cards", "collective", "bandwidthReached", "computeReached"];
const IN_A_ROW = 600; // steps that come faster than this are not animated
const BESIDE = [296, 24, 860]; // pixels: the lab's numbers, before them, and from which width they stand beside the board

export class StepperView extends Played {
  declare record: TraceRecord;
  declare machines: Machines | null;
  declare face: Face;
  declare view: Shown;
  declare longest: Parts;
  declare board: Board;

  frame: Frame;
  /** What is said of it, which pointing at things does not change. */
  said: { sentence: Parts; words: string[] } = { sentence: [], words: [] };
  columnStart: number | null = null;
  open = false; // the fold of what else a case has
  stepped = 0;

  constructor(el: Element, data: Trace, options: any) {
    const record = readTrace(data);
    super(el, options, "stepper", fillText(SAY.label, { model: data.model.name }));
    this.record = record;
    /** Without them there is no lab. */
    this.machines = options.machines ?? null;
    this.face = options.face ?? "story"; // at first
    this.view = shownAtFirst(this, this.face);
    this.longest = this.longestSentence();
    this.board = new Board(
      (row) => this.change({ row }),
      (about) => this.point(about),
    );
    this.start();
  }

  get inLab() {
    return this.view.face === "lab";
  }

  turnTo(face: Face) {
    this.change(turnedTo(this, this.view, face));
  }

  state() {
    return toldShown(this, this.view);
  }

  /** Go where an address says, or as near as there is. */
  goTo(values: Map<string, string>) {
    const wrong: string[] = [];
    const shown = shownFrom(this, values, wrong);
    this.open = this.machines !== null && isMore(shown.chosen);
    this.change(shown);
    return wrong;
  }

  stills() {
    return stillsOf(this.record, this.view);
  }

  /** Whether the lab's numbers stand beside the board. */
  get besideBoard() {
    return this.inLab && this.width >= BESIDE[2];
  }

  get run() {
    return runOf(this.record, this.view.cached);
  }

  /** Index of the last event of the run that is shown, and of the other one. */
  get last() {
    return this.run.events.length - 1;
  }

  /** Light up what belongs to a cell, a weight, a word. */
  point(about: About | null) {
    this.board.point(about);
    super.draw();
  }

  /** Of a dozen passes of each run: the sentence's place is as high. */
  longestSentence() {
    const { record } = this;
    const said = [true, false].flatMap((cached) => {
      const some = sampled(runOf(record, cached).events.length);
      return some.map((event) => sentenceOf(frameOf(record, { ...this.view, event, cached })));
    });
    return said.reduce((a, b) => (plainSentence(b).length > plainSentence(a).length ? b : a));
  }

  keyAction({ key, target }: KeyboardEvent & { target: any }): (() => void) | null | undefined {
    if (target.tagName === "SELECT" || target.closest(".wid-cost")) return null; // sliders of its own
    const { cached, ahead } = this.view;
    const acts: Record<string, (() => void) | false | null> = this.stepKeys();
    if (acts[key]) return target.closest(".wid-picker") ? null : acts[key] || null;
    const both = this.record.withCache && this.record.withoutCache;
    const lines = target.tagName !== "INPUT";
    Object.assign(acts, {
      ArrowUp: lines && (() => this.chooseLine(-1)),
      ArrowDown: lines && (() => this.chooseLine(1)),
      " ": target.tagName !== "BUTTON" && (() => this.togglePlay()),
      c: both && (() => this.change({ cached: !cached })),
      m: this.inLab && (() => this.change({ ahead: !ahead })),
      l: this.machines && (() => this.turnTo(this.inLab ? "story" : "lab")),
    });
    return acts[key.length > 1 ? key : key.toLowerCase()] || null;
  }

  /** Choose the line above or below among those that have run. */
  chooseLine(by: number) {
    const { frame } = this;
    const there = frame.columns.map((c) => c.index).filter((i) => hasRun(frame.run, frame.event, i));
    const row = there[there.indexOf(frame.row ?? -1) + by];
    if (row === undefined) return;
    const inRibbon = document.activeElement?.closest(".wid-ribbon");
    this.change({ row });
    const word: HTMLElement | null | undefined = inRibbon?.querySelector(`[data-token="${row}"]`);
    word?.focus({ preventScroll: true });
  }

  get at() {
    return this.view.event;
  }

  go(event: number) {
    this.change({ event });
  }

  /** Change the view and draw it. */
  change(wanted: Partial<Shown>) {
    const before = this.view;
    const next = { ...before, ...wanted };
    const sameRun = next.cached === before.cached;
    next.event = Math.max(0, Math.min(this.last, next.event));
    if (sameRun && next.event !== before.event && !("row" in wanted)) {
      next.row = null;
      this.columnStart = null;
    }
    const keys = Object.keys(next) as (keyof typeof next)[];
    if (keys.every((key) => JSON.stringify(next[key]) === JSON.stringify(before[key]))) return; // plain data
    this.view = next;
    this.keepAddress();
    const started = performance.now();
    this.draw();
    const forward = next.event === before.event + 1 && sameRun;
    if (forward && !this.still.matches && started - this.stepped > IN_A_ROW && this.width > 0)
      animateStep(this.root, this.frame);
    this.stepped = started;
  }

  draw() {
    if (this.width <= 0) return;
    const { root, view } = this;
    const focused = root.contains(document.activeElement);
    const onRail = focused && document.activeElement?.closest(".wid-rail");
    const theme = this.colours();
    const frame = (this.frame = frameOf(this.record, view));
    this.said = { sentence: sentenceOf(frame), words: describe(frame, this.inLab) };
    const { event, layer } = view;
    const [cache, mask] = [frame.run.keeps, !view.ahead].map((on) => (on ? "on" : "off"));
    Object.assign(root.dataset, { event, cache, layer, head: frame.head ?? "mean", mask });
    this.board.lay(
      this.inLab,
      frame,
      this.besideBoard ? this.width - BESIDE[0] - BESIDE[1] : this.width,
      this.columnStart,
    );
    super.draw();
    this.board.paint(root, theme);
    const stop: HTMLElement | null = onRail ? root.querySelector(".wid-rail [aria-current]") : root;
    if (onRail || (focused && !root.contains(document.activeElement))) stop?.focus({ preventScroll: true });
  }

  template() {
    const { frame, machines, view, inLab } = this;
    const { chosen } = view;
    const choose = (wanted: Partial<Case>) => this.change({ chosen: { ...chosen, ...wanted } });
    const shown = { frame, model: chosen?.model, length: chosen?.tokens };
    const words = { names: { tokens: VIEW.lab.prompt }, fold: VIEW.lab.more };
    return (
      <>
        {this.top()}
        {machines && inLab && (
          <CaseControls
            {...{ machines, chosen, choose, ...words, recorded: true, more: MORE, open: this.open }}
          />
        )}
        {this.rail()}
        {this.controls()}
        {inLab && <Bound {...{ frame, chosen }} />}
        {inLab && <Formula {...shown} />}
        <div
          class={inLab ? `wid-lab ${this.besideBoard ? "beside" : ""}` : ""}
          style={`--numbers:${BESIDE[0]}px;--before:${BESIDE[1]}px`}
        >
          {inLab && <Accumulators {...shown} />}
          <div class="wid-recorded">{this.recorded()}</div>
          {inLab && <Shapes {...shown} />}
        </div>
        {machines && !inLab && <BoundLine {...{ frame, chosen, open: () => this.turnTo("lab") }} />}
        <div class="wid-unseen" role="note" aria-label={SAY["in words"]}>
          {this.said.words.map((line) => (
            <p>{line}</p>
          ))}
        </div>
      </>
    );
  }

  /** From story to lab and back, where both are there; in the lab, at which length it counts. */
  top() {
    const { faces, face } = VIEW.lab;
    const { frame, view, inLab } = this;
    return (
      <div class="wid-top">
        {this.machines && (
          <Picker
            {...{ label: face, names: FACES.map((name) => faces[name]), chosen: FACES.indexOf(view.face) }}
            choose={(i) => this.turnTo(FACES[i])}
          />
        )}
        {inLab && <Length {...{ frame, length: view.chosen?.tokens }} />}
      </div>
    );
  }

  /** The recorded run: its text, who looks at whom, what is kept, what comes out. */
  recorded() {
    const { frame, board } = this;
    const ahead = aheadSentence(frame);
    const { about } = board;
    return (
      <>
        <Ribbon
          {...{ frame, about: about?.column }}
          onRow={(row) => this.change({ row })}
          onPoint={(column) => this.point(column === null ? null : { row: frame.row, column, line: null })}
        />
        <Sentence parts={this.said.sentence} longest={[this.longest]} />
        <p class="wid-ahead" role="status" hidden={!ahead}>
          {ahead}
        </p>
        {board.template()}
        <p class="wid-further soft" hidden={!board.scrolls}>
          {VIEW.labels.scrolls}
        </p>
        <BoardLegend board={board} columns={this.record.columns} />
        <p class="wid-readout soft">
          {(about && pointedAt(about, frame)) ||
            fillText(VIEW.labels.point, { act: VIEW.labels.acts[board.layout.dense ? 1 : 0] })}
        </p>
        {frame.columns.length > WINDOW && this.window()}
        <Below board={board} />
        <Foot board={board} />
      </>
    );
  }

  rail() {
    const { event } = this.view;
    const { events } = this.run;
    const items = fittingRail(events, event, this.width);
    return (
      <ol class="wid-rail" aria-label={SAY.passes}>
        {items.map((index, k) => (
          <li key={index ?? `gap ${k}`}>
            {index === null ? (
              <span class="wid-gap">…</span>
            ) : (
              <Button
                title={events[index].name}
                aria-label={events[index].name}
                aria-current={index === event ? "step" : undefined}
                tabIndex={index === event ? 0 : -1}
                data-event={index}
                onClick={() => this.change({ event: index })}
              >
                {railLabel(events, items, k, event)}
              </Button>
            )}
          </li>
        ))}
      </ol>
    );
  }

  controls() {
    const { event } = this.view;
    const values = { name: this.run.events[event].name, at: event + 1, last: this.last + 1 };
    return (
      <div class="wid-controls">
        {this.buttons(SAY.pass, fillText(SAY.at, values), <Held board={this.board} />)}
        {switchesOf(this.record, this.view, this.frame.head).map(({ to, ...picker }) => (
          <Switch {...picker} choose={(i) => this.change(to(i))} />
        ))}
      </div>
    );
  }

  /** Past so many columns, which of them are shown. */
  window() {
    const { columns } = this.frame;
    const [start, stop] = this.board.cols;
    const onInput = ({ currentTarget }: { currentTarget: HTMLInputElement }) => {
      this.columnStart = Number(currentTarget.value);
      this.draw();
    };
    const range = { min: 0, max: columns.length - WINDOW, value: start };
    return (
      <div class="wid-pickers">
        <label class="wid-picker">
          {`${SAY.columns} `}
          <Slider {...range} aria-label={SAY["first column"]} onInput={onInput} />
          <span class="soft">{fillText(SAY.window, { start: start + 1, stop, all: columns.length })}</span>
        </label>
      </div>
    );
  }
}
