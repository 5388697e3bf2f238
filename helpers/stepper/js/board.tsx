// The board: one column for each token, from its head through the grid, K, the attention weights and V. It is one CSS
// grid, whose rows and columns have names (geometry.ts): a mark stands in row "cell 3" and column "col 2".
import VIEW from "../view.json" with { type: "json" };
import { formatNumber, isolatedText, visibleText } from "./format.ts";
import { AGAIN, AHEAD, COMING, lastPassOf, MASKED, rowCells, sharesOf } from "./frame.ts";
import { layoutOf, rowAt, scrollFor, windowOf } from "./geometry.ts";
import { beside, notes } from "./beside.tsx";
import { weights } from "./lines.tsx";
import { measuresOf, whose } from "./measure.ts";
import { drawerName, keyNames, keyTexts, stateText } from "./words.ts";
import { denseAt, drawDense } from "./canvas.ts";
import { aboutKey, linked } from "./links.ts";
import { Button } from "./parts.tsx";
import type { About, Column, Frame, Layout, Theme } from "./types";

const CELLS = ["", "now", "again", "masked", "earlier", "coming", "ahead"]; // by state

/** Side of a square whose area is a weight's share of a cell. */
const sideOf = (weight: number, cell: number) => Math.max(3, Math.sqrt(Math.min(1, weight)) * cell);

export class Board {
  declare onRow: (row: number) => void;
  declare onPoint: (about: About | null) => void;

  /** `onRow` is called with the token of a chosen line, `onPoint` with what is pointed at. */
  constructor(onRow: (row: number) => void, onPoint: (about: About | null) => void) {
    this.onRow = onRow;
    this.onPoint = onPoint;
  }

  lab = false; // the face that is shown
  frame: Frame;
  layout: Layout;
  measured: ReturnType<typeof measuresOf>;
  /** What is pointed at. */
  about: About | null = null;
  lit = new Set(); // keys of what belongs to it
  seen = 0; // pixels that are in sight
  cols = [0, 0]; // the first column that is laid out, and the first behind
  rows = [0, 0];
  inView = -1;

  /** Lay the board out for a frame, in the story or in the lab, in a width. */
  lay(lab: boolean, frame: Frame, width: number, columnStart: number | null) {
    if (this.measured?.record !== frame.record || lab !== this.lab) this.measured = measuresOf(frame, lab);
    Object.assign(this, { lab, frame });
    this.seen = width;
    const newest = frame.event.queries.at(-1) ?? frame.columns.length - 1;
    const shown = Math.min(frame.columns.length - 1, newest + 1);
    const focus = frame.row === null || frame.row === newest ? shown : frame.row;
    this.cols = windowOf(frame.columns.length, shown, columnStart);
    this.rows = windowOf(frame.columns.length, focus);
    this.layout = layoutOf({
      width,
      columns: this.cols[1] - this.cols[0],
      heads: frame.weights.length,
      contexts: this.showsContexts(frame),
      lab,
      ...this.measured,
    });
    this.point(null);
  }

  /** Whether not all columns are in sight at once. */
  get scrolls() {
    return this.layout.xEnd > this.seen + 2;
  }

  showsContexts(frame: Frame) {
    return frame.record.contexts.size > 0;
  }

  /** Light up what belongs to a pair, a weight or a column, and nothing else. */
  point(about: About | null) {
    this.about = about;
    this.lit = new Set(about ? linked(about, this.frame) : []);
  }

  /** After it has been put on the page: the canvas, and the columns that this pass is about. */
  paint(root: HTMLElement, theme: Theme) {
    const { layout, frame, cols } = this;
    const canvas: HTMLCanvasElement | null = root.querySelector(".wid-canvas");
    if (canvas) drawDense(this, canvas, theme);
    const newest = frame.event.queries.at(-1);
    if (!this.scrolls || newest === undefined || newest === this.inView) return;
    this.inView = newest;
    const k = Math.min(newest, cols[1] - 1) - cols[0];
    (root.querySelector(".wid-board") as Element).scrollLeft = scrollFor(layout, k, this.seen);
  }

  clicked(event: any) {
    if (event.target.closest("button, select, input")) return;
    const box = event.currentTarget.getBoundingClientRect();
    const k = rowAt(this.layout, event.clientY - box.top, this.rows[1] - this.rows[0]);
    if (k !== null && event.clientX - box.left <= this.layout.xEnd) this.onRow(this.rows[0] + k);
  }

  pointed(event: any) {
    const key = event.target.closest("[data-key]")?.dataset.key;
    this.onPoint(key ? aboutKey(key, this.frame) : null);
  }

  /** A key, by which a mark lights up with what belongs to it, and a class. */
  keyed(key: string, className: string) {
    return { "data-key": key, class: this.lit.has(key) ? `${className} lit` : className };
  }

  /** What a mark of the board has: key and class, and a place. */
  at(key: string, className: string, row: string, column: string, style = "") {
    return { key, ...this.keyed(key, className), style: `grid-row:${row};grid-column:${column};${style}` };
  }

  template() {
    const { layout } = this;
    const { dense, narrow } = layout;
    const parts = `--gap:${layout.gap}px;--x0:${layout.x0}px;--seen:${this.seen}px;--said:${this.measured.said}px`;
    const tracks = `grid-template-rows:${layout.rows};grid-template-columns:${layout.columns}`;
    return (
      <div class="wid-board" onPointerLeave={() => this.onPoint(null)}>
        <div
          class={`wid-sheet ${dense ? "wid-dense" : ""} ${narrow ? "wid-narrow" : ""}`}
          style={`width:${layout.width}px;${tracks};${parts}`}
          onClick={(e) => this.clicked(e)}
        >
          {dense && (
            <canvas
              class="wid-canvas"
              onPointerMove={(e) => this.onPoint(denseAt(this, e.offsetX, e.offsetY))}
            />
          )}
          {dense && this.band()}
          {narrow && <div class="wid-strip" />}
          <div
            class="wid-marks"
            aria-hidden="true"
            onPointerOver={(e) => this.pointed(e)}
            onFocusIn={(e) => this.pointed(e)}
          >
            {!dense && this.cells()}
            {this.drawer()}
            {this.state()}
            {weights(this)}
            {layout.notes && beside(this)}
            {notes(this)}
          </div>
          <div class="wid-labels" role="group" aria-label={VIEW.stepper.lines}>
            {this.rowLabels()}
          </div>
          <div class="wid-names" aria-hidden="true">
            {this.names()}
          </div>
        </div>
      </div>
    );
  }

  /** On the canvas, the column that is pointed at. */
  band() {
    const { xs, widths, y } = this.layout;
    const k = this.about?.column == null ? -1 : this.about.column - this.cols[0];
    if (k < 0 || k >= xs.length) return null;
    const height = y.under - y.heads - 14;
    const box = `left:${xs[k]}px;top:${y.heads + 14}px;width:${widths[k]}px;height:${height}px`;
    return <div class="wid-lit-column" style={box} />;
  }

  cells() {
    const { columns } = this.frame;
    return [
      ...columns.map((column, k) => this.head(column, k)),
      ...columns.flatMap((_, i) => this.row(i)),
      ...(this.frame.state ? [] : columns.map((column, k) => this.content("k", column, k))),
      ...(this.frame.state ? [] : columns.map((column, k) => this.content("v", column, k))),
    ];
  }

  /** What the layer keeps instead of KV entries: one block, however many tokens there are. */
  state() {
    const place = this.at("state", "wid-state", "k / span 3", "col 1 / end");
    return (
      this.frame.state && (
        <div {...place}>
          <span>{stateText(this.frame)}</span>
        </div>
      )
    );
  }

  head(column: Column, k: number) {
    const { index, state, live } = column;
    const there = state !== "absent";
    const kind = `${state === "present" ? column.origin : ""} ${live ? "live" : ""}`;
    return (
      <div
        {...this.at(`h${index}`, `wid-head ${state} ${kind}`, "heads", `col ${k + 1}`)}
        title={there ? visibleText(column.text) : VIEW.labels.absent}
      >
        <bdi class="wid-word">{there ? visibleText(column.text) : "\u00a0"}</bdi>
        <span class="wid-place">{column.place}</span>
      </div>
    );
  }

  /** The cells of a line of the grid. */
  row(i: number) {
    const { layout, frame } = this;
    const size = frame.columns.length;
    const { states, counts } = rowCells(frame.run, frame.event.index, i, 0, size, frame.ahead);
    const shares = sharesOf(frame, i);
    const cells = [];
    for (let j = 0; j < size; j++) {
      const state = states[j];
      if (!state || (state === MASKED && size > VIEW.digits_up_to && !this.lab)) continue;
      const share = shares && ![MASKED, COMING, AHEAD].includes(state) ? (shares.get(j) ?? 0) : null;
      const inner = Math.min(layout.widths[j] - 2 * layout.gap, layout.rowH - 4) - 4;
      const side = share === null ? "" : `--side:${sideOf(share, inner).toFixed(1)}px`;
      const shows = share === null ? "" : share ? "share" : "share nil";
      const className = `wid-cell ${CELLS[state]} ${shows}`;
      const mark = state === AGAIN ? counts[j] : state === MASKED ? VIEW.marks.masked : null;
      cells.push(
        <div {...this.at(`c${i}.${j}`, className, `cell ${i + 1}`, `col ${j + 1}`, side)}>{mark}</div>,
      );
    }
    return cells;
  }

  /** K or V of a token. */
  content(kind: "k" | "v", column: Column, k: number) {
    const { layout } = this;
    const contents = column.entry !== "empty" ? this.contentTexts(kind, column) : [];
    const { [column.entry]: word = "" } = VIEW.entries as Record<string, string>;
    const shown = contents.length || !layout.wordy ? contents : [word];
    const className = `wid-row ${kind} ${column.entry} ${contents.length ? "" : "said"}`;
    return (
      <div
        {...this.at(`${kind}${column.index}`, className, kind, `col ${k + 1}`)}
        title={`${kind.toUpperCase()} of ${isolatedText(column.text)}: ${word || column.entry}`}
      >
        {shown.filter(Boolean).join(kind === "k" && layout.tight ? "\n" : " · ")}
      </div>
    );
  }

  contentTexts(kind: "k" | "v", column: Column) {
    if (kind === "k") return this.lab ? keyTexts(column.k) : [];
    if (!column.v || column.v.length > 1) return [];
    return [formatNumber(column.v[0])];
  }

  /** The cache's edge: whole while it keeps its entries from pass to pass, broken where they are dropped. */
  drawer() {
    const { run, event } = this.frame;
    const keeps = run.keeps && event.phase !== "training";
    return [
      <div
        {...this.at("drawer", `wid-drawer ${keeps ? "keeps" : "drops"}`, "drawer / under", "col 1 / end")}
      />,
      <div {...this.at("drawername", "wid-drawername", "drawer", `${this.layout.narrow ? 1 : "col 1"} / -1`)}>
        {drawerName(this.frame)}
      </div>,
    ];
  }

  rowLabels() {
    const { layout, frame, rows } = this;
    const labels = [];
    for (let i = rows[0]; i < rows[1]; i++) {
      const { live, state } = frame.columns[i];
      if (layout.dense && i !== frame.row) continue;
      const old = live ? null : lastPassOf(frame.run, frame.event.index, i);
      if (state === "present" && (live || old || frame.event.counted)) labels.push(this.rowLabel(i, old));
    }
    return labels;
  }

  rowLabel(i: number, pass: string | null) {
    const { layout, frame } = this;
    const { live, text } = frame.columns[i];
    const chosen = i === frame.row;
    const isButton = live && !layout.dense;
    const className = `wid-rowname ${live ? "live" : ""} ${chosen ? "chosen" : ""}`;
    const place = this.at(`${isButton ? "b" : "s"}${i}`, className, `cell ${i - this.rows[0] + 1}`, "names");
    const inner = [
      <bdi class="wid-word">{visibleText(text)}</bdi>,
      <span class="wid-place">{layout.narrow && pass && layout.rowH >= 30 && whose(pass)}</span>,
    ];
    const about = { ...place, title: visibleText(text) };
    if (!isButton) return <div {...about}>{inner}</div>;
    return (
      <Button {...about} aria-pressed={chosen} onClick={() => this.onRow(i)}>
        {inner}
      </Button>
    );
  }

  /** What stands at the left edge, and stays there when the board scrolls. */
  names() {
    const { layout, frame } = this;
    const caption =
      this.lab && !layout.dense && !layout.narrow ? keyNames(frame.record.model.name).join(" · ") : "";
    return [
      <div {...this.at("looks", "wid-looks soft", "heads", "names")}>
        <b>{!layout.narrow && VIEW.labels.looks}</b>
      </div>,
      ...(frame.state ? [] : ["k", "v"]).map((kind) => (
        <div {...this.at(`band${kind}`, `wid-band ${kind}`, kind, "names")}>
          <b>{kind.toUpperCase()}</b> {kind === "k" && caption && <span class="soft">{caption}</span>}
        </div>
      )),
      ...frame.weights.map(({ name }, h) => (
        <div {...this.at(`w${h}`, "wid-text end soft", `weights ${h + 1}`, "names")} title={name}>
          {name}
        </div>
      )),
    ];
  }
}
