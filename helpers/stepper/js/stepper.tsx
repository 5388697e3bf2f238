// The stepper itself: one state for each view, controls, keys, and drawing a pass.
import VIEW from "../view.json" with { type: "json" };
import { nearest } from "./address.ts";
import { caseAtFirst, caseFrom, isMore, toldCase, type Case, type Field, type Machines } from "./case.ts";
import { fillText } from "./format.ts";
import { headName, headsOf, readTrace } from "./trace.ts";
import { frameOf, hasRun, runOf } from "./frame.ts";
import { fittingRail, railLabel, WINDOW } from "./geometry.ts";
import { Played } from "./played.tsx";
import { Button, Picker, Sentence, Slider, Switch } from "./parts.tsx";
import { pointedAt } from "./links.ts";
import { animateStep } from "./motion.ts";
import { Board } from "./board.tsx";
import { Ribbon } from "./ribbon.tsx";
import { Below, BoardLegend, Foot } from "./panels.tsx";
import { Accumulators, Bound, BoundLine, Formula, Length, Shapes } from "./lab_view.tsx";
import { CaseControls } from "./step_panel.tsx";
import { aheadSentence, describe, plainSentence, sentenceOf } from "./words.ts";
import type { About, Frame, Look, Parts, TraceRecord } from "./types";
import type { Trace } from "./schema";

const SAY = VIEW.stepper;
type Face = "story" | "lab";
const FACES = ["story", "lab"] as Face[];
const MORE: Field[] = ["cards", "collective", "bandwidthReached", "computeReached"];
const IN_A_ROW = 600; // steps that come faster than this are not animated
const BESIDE = [296, 24, 860]; // pixels: the lab's numbers, before them, and from which width they stand beside the board

export class StepperView extends Played {
  declare record: TraceRecord;
  declare machines: Machines | null;
  declare face: Face;
  declare view: Look & { chosen: Case; face: Face };
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
    this.view = this.firstOf(this.face);
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

  /** How a face is at first: the lab at Training, with a prompt long enough for the bound to move. */
  firstOf(face: Face): Look & { chosen: Case; face: Face } {
    const { options, record, machines } = this;
    const counted = record.runs[0].events.findIndex((one) => one.counted);
    const event = face === this.face ? options.start : face === "lab" ? 0 : counted;
    const cached = record.withCache !== null;
    const shown = { layer: options.layer, head: options.head ?? null, row: null, ahead: false };
    const chosen = (machines &&
      caseAtFirst(machines, { tokens: face === "lab" ? VIEW.lab.tokens : null })) as Case;
    return { face, event, cached, ...shown, chosen };
  }

  /** To the other face; what stands where the one begins goes to where the other does. */
  turnTo(face: Face) {
    const [from, to] = [this.firstOf(this.view.face), this.firstOf(face)];
    const { event, cached, chosen } = this.view;
    const begins = event === from.event && cached === from.cached;
    const tokens = chosen.tokens === from.chosen.tokens ? to.chosen.tokens : chosen.tokens;
    this.change({ face, event: begins ? to.event : event, chosen: { ...chosen, tokens } });
  }

  /** All counted from 1. */
  told({
    event,
    cached,
    layer,
    head,
    row,
    ahead,
    chosen,
  }: StepperView["view"]): Record<string, string | number | null> {
    return {
      pass: event + 1,
      cache: cached ? "on" : "off",
      layer: layer + 1,
      head: head === null ? "mean" : head + 1,
      line: row === null ? null : row + 1,
      mask: ahead ? "off" : "on",
      ...(this.machines && toldCase(chosen, this.machines)),
    };
  }

  /** What is as the face is at first is not told. */
  state() {
    const { face } = this.view;
    const [told, first] = [this.told(this.view), this.told(this.firstOf(face))];
    for (const name of Object.keys(told)) if (told[name] === first[name]) told[name] = null;
    return { ...told, panels: face === this.face ? null : face };
  }

  /** Go where an address says, or as near as there is. */
  goTo(values: Map<string, string>) {
    const { record } = this;
    const wrong: string[] = [];
    const asked = values.get("panels");
    const face = (this.machines && FACES.find((one) => one === asked)) ?? this.face;
    if (asked !== undefined && face !== asked) wrong.push("panels");
    const first = this.firstOf(face);
    const atFirst = this.told(first) as Record<string, any>;
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
    const { machines } = this;
    const recorded = values.get("text") === "recorded" ? { tokens: null } : {}; // also where it is not so at first
    const chosen = machines
      ? caseFrom(values, machines, { ...first.chosen, ...recorded }, wrong)
      : first.chosen;
    this.open = machines !== null && isMore(chosen);
    this.change({ face, cached, event, layer, head, row, ahead, chosen });
    return wrong;
  }

  /** Prefill, a step with the cache and, in the story, without it; before them training, where it begins there. */
  stills() {
    const { record, view } = this;
    const { events, keeps } = runOf(record, record.withCache !== null);
    const first = events.findIndex((one) => one.counted);
    const told = (event: number, cached = keeps) => ({
      pass: event + 1,
      cache: cached ? "on" : "off",
    });
    const shown =
      this.inLab || view.event < first ? [...events.keys()].slice(0, first + 2) : [first, first + 1];
    const plain = keeps && record.withoutCache && !this.inLab ? [told(first + 1, false)] : [];
    return [...shown.map((event) => told(event)), ...plain].filter(({ pass }) => pass <= events.length);
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
      const many = runOf(record, cached).events.length;
      const every = Math.ceil(many / 12);
      const some = [...Array(many).keys()].filter((i) => i < 3 || i >= many - 2 || (i - 3) % every === 0);
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
  change(wanted: Partial<StepperView["view"]>) {
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
          {(about && pointedAt(about, frame)) || VIEW.labels[board.layout.dense ? "point dense" : "point"]}
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
        {this.buttons(SAY.pass, fillText(SAY.at, values))}
        {this.switches().map((picker) => (
          <Switch {...picker} />
        ))}
      </div>
    );
  }

  /** What can be switched in this trace. */
  switches() {
    const { record, view } = this;
    const { layers } = record;
    const known = [...new Set(record.recorded.map(([, head]) => head))].sort((a, b) => a - b);
    const heads = known.length > 1 ? [null, ...known] : []; // of all layers: it stays as it is
    const there = headsOf(record, view.layer);
    const nameOf = (head: number | null) =>
      head === null || record.model.head_names ? headName(record, head) : String(head + 1);
    const [layer, head, cache, mask] = SAY.switches;
    const onOff = (there: unknown) => (there ? SAY["on or off"] : []);
    const switches = [
      {
        ...{ label: layer, names: layers.map((one) => String(one + 1)), chosen: layers.indexOf(view.layer) },
        choose: (i: number) => this.change({ layer: layers[i] }),
      },
      {
        ...{ label: head, names: heads.map(nameOf), chosen: heads.indexOf(this.frame.head) },
        choose: (i: number) => this.change({ head: heads[i] }),
        allowed: (i: number) => heads[i] === null || there.includes(heads[i]),
      },
      {
        ...{
          label: cache,
          names: onOff(record.withCache && record.withoutCache),
          chosen: view.cached ? 0 : 1,
        },
        choose: (i: number) => this.change({ cached: i === 0 }),
      },
      {
        ...{ label: mask, names: onOff(this.inLab), chosen: view.ahead ? 1 : 0 },
        choose: (i: number) => this.change({ ahead: i === 1 }),
      },
    ];
    return switches.filter(({ names }) => names.length > 1);
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
