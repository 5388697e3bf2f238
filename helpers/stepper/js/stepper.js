// The stepper itself: one state for each view, controls, keys, and drawing a pass.
import VIEW from "../view.json" with { type: "json" };
import { nearest } from "./address.js";
import { clippedText, fillText } from "./format.js";
import { counterpart, headName, headsOf, readSequences } from "./trace.js";
import { frameOf, hasRun, runOf } from "./frame.js";
import { fittingRail, railLabel, WINDOW } from "./geometry.js";
import { fillParts, make, makeButton, makeSelect, Segments, setText } from "./dom.js";
import { pointedAt } from "./links.js";
import { animateStep } from "./motion.js";
import { View } from "./view.js";
import { Board } from "./board.js";
import { Ribbon } from "./ribbon.js";
import { drawBelow, drawDescription, drawFoot, legend } from "./panels.js";
import { describe, sentenceOf } from "./words.js";

const PLAY_EVERY = 1200; // milliseconds
const IN_A_ROW = 600; // steps that come faster than this are not animated
const KEYS =
  "Left and Right step, Home and End jump, Space plays, C turns the cache on or off, Up and Down choose a line.";
const SEGMENTS = 9; // more heads than this are in a list

export class StepperView extends View {
  constructor(el, data, options) {
    const records = readSequences(data);
    super(el, options, "stepper", `Stepper, ${data.model.name}. ${KEYS}`);
    this.records = records;
    this.panels = new Set(options.panels);
    const [record] = this.records;
    const cached = options.cache && record.withCache !== null;
    const [first] = record.runs; // `start` is an index of its events
    const event = counterpart(first, runOf(record, cached), first.events[options.start]).index;
    this.view = { event, cached, layer: options.layer, head: options.head ?? null, row: null, sequence: 0 };
    this.atFirst = {};
    this.atFirst = this.state();
    this.cameFrom = null;
    this.columnStart = null;
    this.playing = null;
    this.build();
    this.root.addEventListener("keydown", (event) => this.pressed(event));
    this.start();
  }

  /** The state as the page's address tells it, all counted from 1; what is as at first is not told. */
  state() {
    const { event, cached, layer, head, row, sequence } = this.view;
    const told = {
      pass: event + 1,
      cache: cached ? "on" : "off",
      layer: layer + 1,
      head: head === null ? "mean" : head + 1,
      line: row === null ? null : row + 1,
      sequence: sequence + 1,
    };
    for (const name of Object.keys(told)) if (told[name] === this.atFirst[name]) told[name] = null;
    return told;
  }

  /** Go where an address says, or as near as there is; returns what was not as it should be. */
  goTo(values) {
    const { atFirst } = this;
    const wrong = [];
    const nearestOf = (name, indices, otherwise) => {
      const { value, fits } = nearest(values.get(name), 1, Math.max(...indices) + 1, otherwise);
      const near = (a, b) => (Math.abs(b + 1 - value) < Math.abs(a + 1 - value) ? b : a);
      const found = value === null ? null : indices.reduce(near);
      if (!fits || (found !== null && found + 1 !== value)) wrong.push(name);
      return found;
    };
    const sequence = nearestOf("sequence", [...this.records.keys()], atFirst.sequence);
    const record = this.records[sequence];
    const cache = values.get("cache") ?? atFirst.cache;
    const known = { on: record.withCache, off: record.withoutCache };
    if (!known[cache]) wrong.push("cache");
    const cached = (known[cache] ? cache : atFirst.cache) === "on";
    const run = runOf(record, cached);
    const event = nearestOf("pass", [...run.events.keys()], atFirst.pass);
    const layer = nearestOf("layer", record.layers, atFirst.layer);
    const mean = (values.get("head") ?? atFirst.head) === "mean";
    const otherwise = atFirst.head === "mean" ? null : atFirst.head;
    const head = mean ? null : nearestOf("head", headsOf(record, layer), otherwise);
    const there = [...record.tokens.keys()].filter((i) => hasRun(run, run.events[event], i));
    const row = there.length ? nearestOf("line", there, null) : null;
    this.change({ cached, sequence });
    this.change({ event, layer, head, row });
    return wrong.length ? fillText(VIEW.labels["no such"], { names: wrong.join(", ") }) : null;
  }

  get record() {
    return this.records[this.view.sequence];
  }

  get run() {
    return runOf(this.record, this.view.cached);
  }

  /** Index of the last event of the run that is shown; the other run may have more, or fewer. */
  get last() {
    return this.run.events.length - 1;
  }

  build() {
    this.rail = make("ol", "wid-rail");
    this.rail.setAttribute("aria-label", "Passes");
    this.buildSentence();
    this.buildControls();
    this.ribbon = new Ribbon(
      (row) => this.change({ row }),
      (token) => this.point(token === null ? null : { row: this.frame.row, column: token, line: null }),
    );
    this.board = new Board(
      this.panels,
      (row) => this.change({ row }),
      (about) => this.point(about),
    );
    this.readout = make("p", "wid-readout soft");
    this.pickers = make("div", "wid-pickers");
    this.below = make("div", "wid-below");
    this.foot = make("div", "wid-foot");
    this.words = make("div", "wid-unseen");
    this.words.setAttribute("role", "note");
    this.words.setAttribute("aria-label", "This pass in words");
    const { rail, controls, ribbon, say, board, readout, pickers, below, foot, words } = this;
    const key = legend(this.panels, this.record.columns);
    this.root.append(rail, controls, ribbon.node, say, board.node, key, readout, pickers, below, foot, words);
    this.readout.hidden = !this.panels.has("weights");
    this.buildWindow();
  }

  buildSwitches() {
    const { record } = this;
    const switches = [];
    if (this.panels.has("layer") && record.layers.length > 1) {
      const names = record.layers.map((layer) => String(layer + 1));
      this.layers = this.picker("Layer", names, (i) => this.change({ layer: record.layers[i] }));
      switches.push(labelled("layer", this.layers.node));
    }
    const heads = [...new Set(record.recorded.map(([, head]) => head))].sort((a, b) => a - b);
    if (this.panels.has("weights") && heads.length > 1) {
      const names = heads.map((head) =>
        record.model.head_names ? headName(record, head) : String(head + 1),
      );
      this.choices = [null, ...heads]; // of all layers, so that the picker stays as it is
      this.heads = this.picker("Head", [VIEW.labels.mean, ...names], (i) =>
        this.change({ head: this.choices[i] }),
      );
      switches.push(labelled("head", this.heads.node));
    }
    if (this.records.length > 1) {
      const numbers = this.records.map((_, i) => String(i + 1));
      this.sequences = this.picker("Sequence", numbers, (sequence) => this.change({ sequence }));
      switches.push(labelled("sequence", this.sequences.node));
    }
    if (record.withCache && record.withoutCache) {
      this.cache = new Segments("KV cache", ["on", "off"], (i) => this.change({ cached: i === 0 }));
      switches.push(labelled("KV cache", this.cache.node));
    }
    return switches;
  }

  /** Buttons for a few, a list for many. */
  picker(label, names, choose) {
    return names.length > SEGMENTS ? makeSelect(label, names, choose) : new Segments(label, names, choose);
  }

  /** Light up what belongs to a cell, a weight, a word; null is none. */
  point(about) {
    if (!this.frame) return;
    this.board.light(about, this.ribbon);
    setText(this.readout, (about && pointedAt(about, this.frame)) || VIEW.labels.point);
  }

  buildSentence() {
    this.say = make("div", "wid-say");
    this.sentence = make("p", "wid-sentence");
    this.sentence.setAttribute("aria-live", "polite");
    const sizer = make("p", "wid-sizer");
    sizer.setAttribute("aria-hidden", "true");
    fillParts(sizer, this.longestSentence());
    this.say.append(this.sentence, sizer);
  }

  longestSentence() {
    const length = (parts) =>
      parts.reduce((n, p) => n + (typeof p === "string" ? p : clippedText(p.token)).length, 0);
    let longest = [""];
    for (const record of this.records)
      for (const cached of [true, false]) {
        const many = runOf(record, cached).events.length;
        const every = Math.ceil(many / 12);
        for (let event = 0; event < many; event += event < 3 || event >= many - 2 ? 1 : every) {
          const parts = sentenceOf(frameOf(record, { ...this.view, event, cached }));
          if (length(parts) > length(longest)) longest = parts;
        }
      }
    return longest;
  }

  buildControls() {
    this.back = makeButton("Back", "", () => this.step(-1));
    this.next = makeButton("Next", "wid-go", () => this.step(1));
    this.play = makeButton("Play", "", () => this.togglePlay());
    this.slider = make("input");
    this.slider.type = "range";
    this.slider.min = 0;
    this.slider.setAttribute("aria-label", "Pass");
    this.slider.addEventListener("input", () => this.change({ event: Number(this.slider.value) }));
    this.controls = make("div", "wid-controls");
    const buttons = make("div", "wid-buttons");
    buttons.append(this.back, this.next, this.play, this.slider);
    this.controls.append(buttons, ...this.buildSwitches());
  }

  /** Past so many columns, which of them are shown. */
  buildWindow() {
    this.windowSlider = make("input");
    this.windowSlider.type = "range";
    this.windowSlider.min = 0;
    this.windowSlider.setAttribute("aria-label", "First column shown");
    this.windowSlider.addEventListener("input", () => {
      this.columnStart = Number(this.windowSlider.value);
      this.draw();
    });
    this.windowWords = make("span", "soft");
    const label = make("label", "wid-picker", "columns ");
    label.append(this.windowSlider, this.windowWords);
    this.pickers.append(label);
  }

  pressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.tagName === "SELECT") return;
    const act = this.keyAction(event);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  keyAction(event) {
    const onWindow = event.target === this.windowSlider;
    const onSlider = event.target.tagName === "INPUT";
    const lines = { ArrowUp: -1, ArrowDown: 1 };
    if (event.key in lines && !onSlider && this.panels.has("weights"))
      return () => this.chooseLine(lines[event.key]);
    const arrows = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => this.change({ event: 0 }),
      End: () => this.change({ event: this.last }),
    };
    if (arrows[event.key]) return onWindow ? null : arrows[event.key];
    if (event.key === " " && event.target.tagName !== "BUTTON") return () => this.togglePlay();
    if (event.key.toLowerCase() === "c" && this.cache)
      return () => this.change({ cached: !this.view.cached });
    return null;
  }

  /** Choose the line above or below among those that have run. */
  chooseLine(by) {
    const { frame } = this;
    const there = frame.columns.map((c) => c.index).filter((i) => hasRun(frame.run, frame.event, i));
    const row = there[there.indexOf(frame.row) + by];
    if (row === undefined) return;
    const inRibbon = this.ribbon.node.contains(document.activeElement);
    this.change({ row });
    if (inRibbon) this.ribbon.wordOf(row).focus({ preventScroll: true });
  }

  step(by) {
    this.change({ event: this.view.event + by });
  }

  togglePlay() {
    if (this.playing !== null) return this.stop();
    if (this.view.event === this.last) this.change({ event: 0 });
    this.playing = setInterval(() => this.playOn(), PLAY_EVERY);
    setText(this.play, "Pause");
  }

  playOn() {
    if (!this.root.isConnected) return this.stop();
    this.step(1);
    if (this.view.event === this.last) this.stop();
  }

  stop() {
    clearInterval(this.playing);
    this.playing = null;
    setText(this.play, "Play");
  }

  /** Change the view and draw it; a step leaves performance entries named "wid-step". */
  change(wanted) {
    const next = { ...this.view, ...wanted };
    if (next.cached !== this.view.cached) next.event = this.crossOver(next.cached);
    else next.event = Math.max(0, Math.min(this.last, next.event));
    const moved = next.event !== this.view.event && next.cached === this.view.cached;
    if ((moved || next.sequence !== this.view.sequence) && !("row" in wanted)) {
      next.row = null;
      this.columnStart = null;
    }
    if (Object.keys(next).every((key) => next[key] === this.view[key])) return;
    const forward =
      next.event === this.view.event + 1 &&
      next.cached === this.view.cached &&
      next.sequence === this.view.sequence;
    this.view = next;
    this.keepAddress();
    const started = performance.now();
    this.draw();
    if (forward && !this.still.matches && started - (this.stepped ?? 0) > IN_A_ROW && this.width > 0)
      animateStep(this.board, this.ribbon, this.frame);
    this.stepped = started;
    performance.measure("wid-step", { start: started, end: performance.now() });
  }

  /** Where the other run goes on; back from there the reader is where he came from. */
  crossOver(cached) {
    const { event } = this.view;
    const back = this.cameFrom?.to === event && this.cameFrom.cached === cached ? this.cameFrom.event : null;
    const to = back ?? counterpart(this.run, runOf(this.record, cached), this.run.events[event]).index;
    this.cameFrom = { cached: this.view.cached, event, to };
    return to;
  }

  draw() {
    const { width } = this;
    if (width <= 0) return; // not in sight: drawn as soon as it is
    const focused = this.root.contains(document.activeElement);
    const theme = this.colours();
    const frame = frameOf(this.record, this.view);
    this.frame = frame;
    this.root.dataset.event = String(this.view.event);
    this.root.dataset.cache = frame.run.keeps ? "on" : "off";
    this.root.dataset.layer = String(this.view.layer);
    this.root.dataset.head = frame.head === null ? "mean" : String(frame.head);
    this.root.dataset.sequence = String(this.view.sequence);
    this.drawRail(frame, width);
    this.drawControls(frame);
    this.ribbon.draw(frame, this.panels.has("weights"));
    fillParts(this.sentence, sentenceOf(frame));
    this.board.draw(frame, width, this.columnStart, theme);
    this.drawWindow(frame);
    this.point(null);
    drawBelow(this.below, frame, this.board.layout, this.panels, this.board.showsContexts(frame));
    drawFoot(this.foot, frame, this.board.layout, this.panels);
    drawDescription(this.words, describe(frame, this.panels));
    if (focused && !this.root.contains(document.activeElement)) this.root.focus({ preventScroll: true });
  }

  drawRail(frame, width) {
    const items = fittingRail(frame.run.events, this.view.event, width);
    const names = items.map((index) => (index === null ? "" : frame.run.events[index].name));
    const key = items.includes(null) ? `${names.join()} ${this.view.event}` : names.join();
    if (this.railKey !== key) this.fillRail(items, frame.run.events);
    this.railKey = key;
    for (const button of this.rail.querySelectorAll("button")) {
      if (Number(button.dataset.event) === this.view.event) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
  }

  fillRail(items, events) {
    const focused = this.rail.contains(document.activeElement) ? document.activeElement.dataset.event : null;
    this.rail.replaceChildren(
      ...items.map((index, k) => {
        const item = make("li");
        if (index === null) {
          item.append(make("span", "wid-gap", "…"));
          return item;
        }
        const button = make("button", "", railLabel(events, items, k, this.view.event));
        button.type = "button";
        button.title = events[index].name;
        button.setAttribute("aria-label", events[index].name);
        button.dataset.event = String(index);
        button.addEventListener("click", () => this.change({ event: index }));
        item.append(button);
        return item;
      }),
    );
    if (focused !== null)
      this.rail.querySelector(`[data-event="${focused}"]`)?.focus({ preventScroll: true });
  }

  drawControls(frame) {
    const { event } = this.view;
    // Not `disabled`: a disabled button that has the focus swallows the keys.
    this.back.setAttribute("aria-disabled", String(event === 0));
    this.next.setAttribute("aria-disabled", String(event === this.last));
    this.slider.max = this.last;
    if (this.slider.value !== String(event)) this.slider.value = event;
    this.slider.setAttribute("aria-valuetext", `${frame.event.name}, ${event + 1} of ${this.last + 1}`);
    if (this.cache) this.cache.press(this.view.cached ? 0 : 1);
    if (this.layers) this.layers.press(this.record.layers.indexOf(this.view.layer));
    if (this.sequences) this.sequences.press(this.view.sequence);
    if (!this.heads) return;
    const there = headsOf(this.record, this.view.layer);
    this.heads.press(this.choices.indexOf(frame.head));
    this.heads.allow((i) => i === 0 || there.includes(this.choices[i]));
  }

  drawWindow(frame) {
    this.pickers.hidden = frame.columns.length <= WINDOW;
    if (this.pickers.hidden) return;
    const [start, stop] = this.board.cols;
    this.windowSlider.max = frame.columns.length - WINDOW;
    this.windowSlider.value = start;
    setText(this.windowWords, `${start + 1} to ${stop} of ${frame.columns.length}`);
  }

  destroy() {
    this.stop();
    super.destroy();
  }
}

function labelled(text, node) {
  const label = make("span", "wid-switch", `${text} `);
  label.append(node);
  return label;
}
