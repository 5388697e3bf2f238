// The board: one column for each token, from its head through the grid, K, the attention weights and V.
import VIEW from "../view.json" with { type: "json" };
import { clippedText, fillText, formatNumber, formatPercent, isolatedText, visibleText } from "./format.js";
import { AGAIN, COMING, EARLIER, isPicked, lastPassOf, MASKED, NOW, rowCells, sharesOf } from "./frame.js";
import { centreX, layoutOf, NARROW_TEXT, nextTop, rowAt, rowTop, scrollFor, windowOf } from "./geometry.js";
import { make, Pool, setText, textWidths, wordNode } from "./dom.js";
import { contentOf } from "./trace.js";
import { keyCaption, keyTexts, ledgerOf, rowsNote, shapesOf, sumOf } from "./words.js";
import { denseAt, drawDense } from "./canvas.js";
import { aboutKey, linked } from "./links.js";

const LABEL_FONT = "600 13px system-ui, sans-serif";
const WORD_FONT = "13px system-ui, sans-serif";
const SOFT_FONT = "12px system-ui, sans-serif";
const PLACE_FONT = "11px system-ui, sans-serif";
const SAID = [40, 92]; // least and greatest width of the candidates' words
const LINE = 24; // height of one candidate
const CONTEXT = 46; // width of one context
const CANDIDATES = 8;

/** Whose work a row is that does not run: "prefill's, untouched", and short "prefill's". */
function untouched(pass) {
  return fillText(VIEW.labels.untouched, { pass: pass.toLowerCase() });
}

function whose(pass) {
  return untouched(pass).split(",")[0];
}

export const CELL_CLASSES = {
  [NOW]: "now",
  [AGAIN]: "again",
  [MASKED]: "masked",
  [EARLIER]: "earlier",
  [COMING]: "coming",
};

/** Side of a square whose area is a weight's share of a cell. */
export function sideOf(weight, cell) {
  return Math.max(3, Math.sqrt(Math.min(1, weight)) * cell);
}

export class Board {
  /** `panels` is a Set of names; `onRow` is called with the token of a chosen line, `onPoint` with what is pointed at. */
  constructor(panels, onRow, onPoint) {
    this.panels = panels;
    this.onRow = onRow;
    this.lit = [];
    this.node = make("div", "wid-board");
    this.sheet = make("div", "wid-sheet");
    this.canvas = make("canvas", "wid-canvas");
    this.marks = make("div", "wid-marks");
    this.marks.setAttribute("aria-hidden", "true");
    this.labels = make("div", "wid-labels");
    this.labels.setAttribute("role", "group");
    this.labels.setAttribute("aria-label", "Lines of this pass: choose whose attention weights are shown");
    this.names = make("div", "wid-names");
    this.names.setAttribute("aria-hidden", "true");
    this.band = make("div", "wid-lit-column");
    this.band.hidden = true;
    this.sheet.append(this.names, this.labels, this.canvas, this.band, this.marks);
    this.node.append(this.sheet);
    this.pool = new Pool(this.marks);
    this.rowPool = new Pool(this.labels);
    this.namePool = new Pool(this.names);
    this.canvas.addEventListener("pointermove", (e) => onPoint(denseAt(this, e.offsetX, e.offsetY)));
    for (const kind of ["pointerover", "focusin"])
      this.marks.addEventListener(kind, (e) => {
        const key = e.target.closest("[data-key]")?.dataset.key;
        onPoint(key ? aboutKey(key, this.frame) : null);
      });
    this.node.addEventListener("pointerleave", () => onPoint(null));
    this.sheet.addEventListener("click", (e) => this.clicked(e));
  }

  clicked(event) {
    if (!this.frame || !this.panels.has("weights") || event.target.closest("button, select, input")) return;
    const box = this.sheet.getBoundingClientRect();
    const k = rowAt(this.layout, event.clientY - box.top, this.rows[1] - this.rows[0]);
    const x = event.clientX - box.left;
    if (k === null || x > this.layout.xEnd) return;
    const query = this.rows[0] + k;
    this.onRow(query);
  }

  /** Light up what belongs to a pair, a weight or a column, and nothing else. */
  light(about, ribbon) {
    for (const node of this.lit) node.classList.remove("lit");
    const keys = about && this.panels.has("weights") ? linked(about, this.frame) : [];
    const terms = keys
      .filter((key) => key[0] === "t")
      .map((key) => this.marks.querySelector(`[data-key="${key}"]`));
    const word = about && about.column !== null ? ribbon.wordOf(about.column) : null;
    const own = keys.map((key) =>
      [this.pool, this.rowPool, this.namePool].map((pool) => pool.nodes.get(key)),
    );
    this.lit = [...own.flat(), ...terms, word].filter(Boolean);
    for (const node of this.lit) node.classList.add("lit");
    this.drawBand(about);
  }

  /** On the canvas, the column that is pointed at. */
  drawBand(about) {
    const k = this.layout.dense && about?.column != null ? about.column - this.cols[0] : -1;
    this.band.hidden = k < 0 || k >= this.layout.xs.length;
    if (this.band.hidden) return;
    const { xs, widths, y } = this.layout;
    const height = y.drawer + y.drawerH - y.heads - 14;
    this.band.style.cssText = `left:${xs[k]}px;top:${y.heads + 14}px;width:${widths[k]}px;height:${height}px`;
  }

  measure(frame) {
    if (this.measured === frame.record) return;
    this.measured = frame.record;
    const columns = frame.columns.slice(0, 32);
    const words = textWidths(
      columns.map((c) => clippedText(c.text, 40)),
      WORD_FONT,
    );
    const widest = (texts) => Math.max(0, ...textWidths(texts, WORD_FONT));
    const numbers = columns.map((c) => widest(this.numbersOf(frame.record, c.index)));
    // Numbers are not set smaller where room is short, as words are.
    this.wants = words.map((word, k) => Math.max(word, numbers[k] + 6));
    const labels = [...columns.map((c) => clippedText(c.text, 40)), ...frame.heads.map((h) => h.name)];
    // Those that may be named under a row: the rows of the last pass are live.
    const passes = frame.run.events.slice(0, -1).map((event) => whose(event.name));
    // The words are set smaller where room is short, the names of the passes under them are not.
    const places = textWidths(passes, PLACE_FONT).map((width) => width / NARROW_TEXT);
    this.label = Math.max(...textWidths(labels, LABEL_FONT), ...places);
    this.sheet.style.setProperty("--wid-said", `${this.saidWidth(frame.record)}px`);
  }

  /** One width for the candidates' words in every pass, so that their bars get the rest. */
  saidWidth(record) {
    const outs = record.runs.flatMap((run) => run.events.flatMap((event) => event.part?.out ?? []));
    const words = new Set(outs.slice(0, 64).flatMap((out) => out.top.map(([word]) => clippedText(word, 12))));
    return Math.min(SAID[1], Math.max(SAID[0], ...textWidths([...words], LABEL_FONT).map(Math.ceil)));
  }

  /** What stands in a token's V, layer by layer: columns that fit them all do not move between layers. */
  numbersOf(record, index) {
    if (!this.panels.has("values")) return [];
    const rows = record.values.map((kept) => contentOf(record, "v", index, kept.layer));
    return rows.filter((row) => row?.length === 1).map((row) => formatNumber(row[0]));
  }

  draw(frame, width, columnStart, theme) {
    this.measure(frame);
    this.frame = frame;
    const newest = frame.event.queries.at(-1) ?? frame.columns.length - 1;
    const shown = Math.min(frame.columns.length - 1, newest + 1);
    this.cols = windowOf(frame.columns.length, shown, columnStart);
    this.rows = windowOf(
      frame.columns.length,
      frame.row === null || frame.row === newest ? shown : frame.row,
    );
    const has = (name) => this.panels.has(name);
    this.layout = layoutOf({
      width,
      columns: this.cols[1] - this.cols[0],
      heads: frame.weights.length,
      panels: {
        weights: has("weights"),
        contexts: this.showsContexts(frame),
        prediction: has("prediction"),
        keys: has("keys"),
        values: has("values"),
        shapes: has("shapes"),
        ledger: has("ledger"),
      },
      wants: this.wants,
      label: this.label,
    });
    this.sheet.style.width = `${this.layout.width}px`;
    this.sheet.style.height = `${this.layout.height}px`;
    this.sheet.classList.toggle("wid-dense", this.layout.dense);
    this.canvas.hidden = !this.layout.dense;
    this.pool.begin();
    this.rowPool.begin();
    this.namePool.begin();
    this.seen = width;
    if (this.layout.narrow)
      this.namePool.put("strip", "div", "wid-strip", [0, 0, this.layout.x0 - 2, this.layout.height]);
    if (this.layout.dense) drawDense(this, theme);
    else this.drawCells();
    this.drawDrawer();
    this.drawRowLabels();
    this.drawBands();
    if (has("weights")) this.drawWeights();
    this.drawRight();
    this.pool.end();
    this.rowPool.end();
    this.namePool.end();
    this.keepInView();
  }

  showsContexts(frame) {
    return this.panels.has("contexts") && frame.record.contexts.size > 0;
  }

  put(key, className, box, text = null, title = "", style = "") {
    return this.pool.put(key, "div", className, box, text, title, style);
  }

  /** A name at the left edge; stays there when the board scrolls. */
  name(key, className, y, text, title = "") {
    this.namePool.put(key, "div", `wid-text end ${className}`, [0, y, this.layout.x0 - 10, 16], text, title);
  }

  /** Text that runs along the board; where the board is narrow it does not scroll with it. */
  line(key, className, x, y, width, text, title = "") {
    if (!this.layout.narrow) return this.text(key, className, x, y, width, text, title);
    return this.namePool.put(
      key,
      "div",
      `wid-text ${className}`,
      [x, y, Math.min(width, this.seen - x), 16],
      text,
      title,
    );
  }

  /** When the board scrolls in its own box, show the columns that this pass is about. */
  keepInView() {
    const { layout, frame, cols } = this;
    const newest = frame.event.queries.at(-1);
    if (layout.xEnd <= this.seen + 2 || newest === undefined || newest === this.inView) return;
    this.inView = newest;
    const k = Math.min(newest, cols[1] - 1) - cols[0];
    this.node.scrollLeft = scrollFor(layout, k, this.seen);
  }

  text(key, className, x, y, width, text, title = "") {
    return this.put(key, `wid-text ${className}`, [x, y, width, 16], text, title);
  }

  drawCells() {
    const { layout, frame } = this;
    frame.columns.forEach((column, k) => {
      this.drawHead(column, k);
      this.drawContent("k", column, k, layout.y.k, layout.y.kH);
      this.drawContent("v", column, k, layout.y.v, layout.y.vH);
    });
    for (let i = 0; i < frame.columns.length; i++) this.drawRow(i);
  }

  drawRow(i) {
    const { layout, frame } = this;
    const size = frame.columns.length;
    const { states, counts } = rowCells(frame.run, frame.event.index, i, 0, size);
    const shares = this.sharesOf(i);
    const top = rowTop(layout, i);
    for (let j = 0; j < size; j++) {
      const state = states[j];
      if (!state || (state === MASKED && size > VIEW.digits_up_to)) continue;
      const width = layout.widths[j] - 2 * layout.gap;
      const share =
        shares && (state === NOW || state === AGAIN || state === EARLIER) ? (shares.get(j) ?? 0) : null;
      const side = sideOf(share ?? 0, Math.min(width, layout.rowH - 4) - 4);
      this.put(
        `c${i}.${j}`,
        `wid-cell ${CELL_CLASSES[state]} ${share === null ? "" : share ? "share" : "share nil"}`,
        [layout.xs[j] + layout.gap, top + 2, width, layout.rowH - 4],
        state === AGAIN ? String(counts[j]) : state === MASKED ? VIEW.marks.masked : "",
        "",
        share === null ? "" : `--side:${side.toFixed(1)}px`,
      );
    }
  }

  /** The weights of a line in the grid; null for plain dots. */
  sharesOf(query) {
    return this.panels.has("weights") ? sharesOf(this.frame, query) : null;
  }

  drawHead(column, k) {
    const { layout } = this;
    const kind = column.state === "present" ? column.origin : "";
    const title = column.state === "absent" ? "not there yet" : visibleText(column.text);
    const node = this.put(
      `h${column.index}`,
      `wid-head ${column.state} ${kind} ${column.fate} ${column.live ? "live" : ""}`,
      [layout.xs[k] + layout.gap, layout.y.heads, layout.widths[k] - 2 * layout.gap, layout.y.headsH],
      null,
      title,
    );
    if (!node.firstChild) node.append(make("bdi", "wid-word"), make("span", "wid-place"));
    setText(node.firstChild, column.state === "absent" ? " " : visibleText(column.text));
    setText(node.lastChild, String(column.position));
  }

  drawContent(kind, column, k, top, height) {
    const { layout } = this;
    const filled = column.row !== "empty" && column.row !== "dropped";
    const contents = filled ? this.contentTexts(kind, column) : [];
    const shown = contents.length || !layout.wordy ? contents : [VIEW.rows[column.row] ?? ""];
    const lines = kind === "k" && layout.tight ? shown : [shown.join(" · ")];
    this.put(
      `${kind}${column.index}`,
      `wid-row ${kind} ${column.row} ${contents.length ? "" : "said"}`,
      [layout.xs[k] + layout.gap, top, layout.widths[k] - 2 * layout.gap, height],
      lines.filter(Boolean).join("\n"),
      `${kind.toUpperCase()} of ${isolatedText(column.text)}: ${VIEW.rows[column.row] ?? column.row}`,
    );
  }

  contentTexts(kind, column) {
    if (kind === "k") return this.panels.has("keys") ? keyTexts(this.frame.record.model.name, column.k) : [];
    if (!this.panels.has("values") || !column.v || column.v.length > 1) return [];
    return [formatNumber(column.v[0])];
  }

  drawRowLabels() {
    const { layout, frame, rows } = this;
    const selectable = this.panels.has("weights") && !layout.dense;
    for (let i = rows[0]; i < rows[1]; i++) {
      const column = frame.columns[i];
      const live = column.live;
      if (layout.dense && i !== frame.row) continue;
      const old = live ? null : lastPassOf(frame.run, frame.event.index, i);
      if (column.state !== "present" || (!live && !old && !frame.event.counted)) continue;
      this.drawRowLabel(column, i - rows[0], selectable && live, layout.narrow && old);
    }
  }

  drawRowLabel(column, k, asButton, pass) {
    const { layout, frame } = this;
    const chosen = column.index === frame.row && this.panels.has("weights");
    const className = `wid-rowname ${column.fate} ${column.live ? "live" : ""} ${chosen ? "chosen" : ""}`;
    const height = layout.dense ? 20 : layout.rowH;
    const top = rowTop(layout, k) + (layout.rowH - height) / 2;
    const word = visibleText(column.text);
    const node = this.rowPool.put(
      `${asButton ? "b" : "s"}${column.index}`,
      asButton ? "button" : "div",
      className,
      [0, top, layout.x0 - 6, height],
      null,
      word,
    );
    if (!node.firstChild) node.append(make("bdi", "wid-word"), make("span", "wid-place"));
    setText(node.firstChild, word);
    setText(node.lastChild, pass && layout.rowH >= 30 ? whose(pass) : "");
    if (!asButton) return;
    node.type = "button";
    node.setAttribute("aria-pressed", String(chosen));
    node.onclick = () => this.onRow(column.index);
  }

  drawBands() {
    const { layout, frame } = this;
    const { y, x0 } = layout;
    const right = x0 - 10;
    const shapes = this.panels.has("shapes") && !layout.narrow ? shapesOf(frame) : {};
    const lines = [shapes.q, shapes.scores].filter(Boolean);
    this.text(
      "looks",
      "soft strong",
      0,
      lines.length ? y.heads - 1 : y.heads + 11,
      right,
      layout.narrow ? "" : VIEW.labels.looks,
    );
    lines.forEach((line, k) =>
      this.text(
        `shape${k}`,
        "soft shape",
        0,
        y.heads + 14 * (k + 1),
        right + 6,
        line,
        "heads × queries × numbers of one query (Q) or keys (scores)",
      ),
    );
    const caption = this.panels.has("keys") && !layout.dense ? keyCaption(frame.record) : null;
    const band = (key, name, top, height, note) => {
      const lift = note && !layout.narrow ? 8 : 0;
      this.name(`band${key}`, `letter ${key}`, top + height / 2 - 8 - lift, name);
      if (lift) this.name(`band${key}2`, "soft", top + height / 2 + 2, note);
    };
    band("k", "K", y.k, y.kH, caption);
    band("v", "V", y.v, y.vH, null);
  }

  drawWeights() {
    const { layout, frame } = this;
    const { y } = layout;
    const pool = layout.narrow ? this.namePool : this.pool;
    const caption = pool.put("caption", "div", "wid-caption", [
      0,
      y.caption,
      layout.narrow ? this.seen : layout.notes.x - 12,
      18,
    ]);
    if (!caption.firstChild) caption.append(make("span"), wordNode(""), make("span", "wid-aside"));
    const row = frame.row === null ? null : frame.columns[frame.row];
    const { weights } = VIEW.labels;
    setText(caption.children[0], row ? `${weights} of ` : weights);
    setText(caption.children[1], row ? clippedText(row.text, 18) : "");
    setText(caption.children[2], row ? this.weightsAside() : VIEW.labels["no line"]);
    frame.weights.forEach((line, h) => this.drawWeightLine(line, h));
  }

  weightsAside() {
    const { frame, layout } = this;
    const { queries, visible, index } = frame.event;
    if (!visible.has(frame.row))
      return fillText(VIEW.labels["thrown away"], {
        pass: lastPassOf(frame.run, index, frame.row).toLowerCase(),
      });
    return layout.narrow || queries.length < 2 ? "" : VIEW.labels["choose line"];
  }

  drawWeightLine(line, h) {
    const { layout, cols } = this;
    const { y } = layout;
    const top = y.weights + h * y.lineH;
    const middle = top + y.lineH / 2;
    this.name(`w${h}`, "soft", middle - 8, line.name, line.name);
    if (!line.weights) {
      this.text(
        `w${h}none`,
        "soft",
        layout.x0 + 4,
        middle - 8,
        null,
        this.frame.row === null ? "" : "not recorded",
      );
      return;
    }
    if (layout.dense) return;
    const digits = this.frame.columns.length <= VIEW.digits_up_to;
    const most = Math.min(15, y.lineH - 4);
    line.weights.forEach((w, k) => {
      const j = line.columns[k];
      if (j < cols[0] || j >= cols[1]) return;
      const centre = centreX(layout, j - cols[0]);
      if (!isPicked(w, line.columns.length)) {
        this.text(`w${h}.${j}`, "mid soft", centre - 10, middle - 8, 20, "·");
        return;
      }
      const side = Math.max(2, Math.sqrt(w) * most);
      const [sx, sy] = !digits
        ? [centre, middle]
        : layout.stacked
          ? [centre, top + 9]
          : [centre - 12, middle];
      this.put(`w${h}.${j}s`, "wid-weight", [sx - side / 2, sy - side / 2, side, side]);
      if (digits && layout.stacked)
        this.text(
          `w${h}.${j}d`,
          "mid number",
          centre - layout.widths[j - cols[0]] / 2,
          top + 16,
          layout.widths[j - cols[0]],
          formatNumber(w),
        );
      else if (digits) this.text(`w${h}.${j}d`, "number", centre - 1, middle - 8, 34, formatNumber(w));
    });
  }

  drawRight() {
    const { layout, frame } = this;
    this.drawNotes();
    if (!layout.notes) return;
    if (this.showsContexts(frame)) this.drawContexts();
    if (!layout.dense) this.drawUntouched();
    else if (olderRows(frame))
      this.text(
        "old",
        "soft",
        layout.notes.x,
        layout.y.heads + 5,
        layout.notes.width,
        "earlier lines: untouched",
      );
    if (layout.next) frame.targets.size ? this.drawTargets() : this.drawNext();
  }

  drawContexts() {
    const { layout, frame } = this;
    const { x } = layout.notes;
    if (layout.dense) return;
    this.text("ctx", "soft strong", x, layout.y.heads + 1, null, VIEW.labels.contexts);
    frame.heads.forEach(({ name }, h) =>
      this.text(`ctx${h}`, "mid soft", x + h * CONTEXT - 4, layout.y.heads + 20, CONTEXT, name, name),
    );
    for (const [query, numbers] of frame.contexts) {
      const top = rowTop(layout, query) + layout.rowH / 2 - 8;
      const last = query === frame.row || query === frame.out?.query;
      numbers.forEach((c, h) =>
        this.text(
          `ctx${query}.${h}`,
          `mid number ${last ? "" : "soft"}`,
          x + h * CONTEXT - 4,
          top,
          CONTEXT,
          formatNumber(c),
        ),
      );
    }
  }

  drawUntouched() {
    const { layout, frame } = this;
    for (const column of frame.columns) {
      const pass = column.live ? null : lastPassOf(frame.run, frame.event.index, column.index);
      if (!pass) continue;
      this.text(
        `old${column.index}`,
        "soft",
        layout.notes.x,
        rowTop(layout, column.index) + layout.rowH / 2 - 8,
        null,
        untouched(pass),
      );
    }
  }

  /** What happens to the rows, beside the cache or under it. */
  drawNotes() {
    const { layout, frame } = this;
    const { y, notes, narrow } = layout;
    const shapes = this.panels.has("shapes") ? shapesOf(frame) : {};
    const x = narrow ? layout.x0 : notes.x;
    const width = (narrow || layout.mode === "wide" ? layout.width : x + notes.width) - x;
    if (!narrow) frame.weights.forEach((line, h) => this.panels.has("weights") && this.drawSum(line, h));
    const together = narrow || layout.dense; // else each beside its own row
    let at = narrow ? y.under : layout.dense ? y.drawer - 2 : y.k + y.kH / 2 - (shapes.k ? 16 : 8);
    this.line("noteK", "soft", x, at, width, rowsNote(frame));
    const said = [shapes.k, shapes.v].filter(Boolean);
    if (!together && shapes.k) this.line("shapeK", "soft shape", x, at + 16, width, said.shift());
    at = together ? at + 17 : y.v + y.vH / 2 - (shapes.v ? 16 : 8);
    if (this.panels.has("ledger")) at += this.drawLedger(x, at, narrow ? this.seen - x : width);
    if (said.length) this.line("shapeV", "soft shape", x, at, width, said.join(" · "));
  }

  /** The ledger, in one line or two; returns its height. */
  drawLedger(x, top, room) {
    const ledger = ledgerOf(this.frame);
    const [wanted] = textWidths([ledger.text], ledger.holds ? WORD_FONT : SOFT_FONT);
    const className = `ledger ${ledger.holds ? "number" : "soft"}`;
    this.line("ledger", className, x, top, room, ledger.text).dataset.holds = ledger.holds;
    return wanted > room ? 32 : 16;
  }

  /** The cache's edge: whole while it keeps its rows from pass to pass, broken where they are dropped. */
  drawDrawer() {
    const { layout, frame } = this;
    const { y, x0, xEnd } = layout;
    const keeps = frame.run.keeps && frame.event.phase !== "training";
    const beyond = layout.narrow ? 1 : 7;
    const box = [x0 - beyond, y.drawer, xEnd - x0 + 2 * beyond, y.drawerH];
    this.put("drawer", `wid-drawer ${keeps ? "keeps" : "drops"}`, box);
    const name = VIEW.drawer[keeps ? "keeps" : frame.run.keeps ? "training" : "drops"];
    this.put("drawername", "wid-drawername", [x0 + 4, y.drawer - 9, null, 16], name);
  }

  drawSum(line, h) {
    const { layout } = this;
    const sum = sumOf(line);
    if (sum === null) return;
    const middle = layout.y.weights + h * layout.y.lineH + layout.y.lineH / 2;
    const node = this.text(`sum${h}`, "number", layout.notes.x, middle - 8, null);
    if (node.widSum === (node.widSum = `${JSON.stringify(sum)}${line.context[0]}`)) return;
    node.replaceChildren(...sumNodes(sum, h), " = ", make("b", "", formatNumber(line.context[0])));
  }

  drawTargets() {
    const { layout, frame } = this;
    const { x } = layout.next;
    if (layout.dense) return;
    this.text("tgt", "soft strong", x, layout.y.heads + 20, null, VIEW.labels.target);
    for (const [query, word] of frame.targets)
      this.text(
        `tgt${query}`,
        "target",
        x,
        rowTop(layout, query) + layout.rowH / 2 - 8,
        layout.next.width,
        `→ ${visibleText(word)}`,
        visibleText(word),
      );
  }

  drawNext() {
    const { layout, frame, rows } = this;
    const { out } = frame;
    if (!out) return;
    const listing = candidates(out);
    const through = throughLayers(frame);
    const middle = rowTop(layout, out.query - rows[0]) + layout.rowH / 2;
    const said = out.how === "greedy" ? [] : [out.how, VIEW.labels.shares];
    const top = nextTop(layout, middle, listing.length + said.length, LINE, layout.y.k - 6);
    const x = layout.next.x + 26;
    const width = layout.next.width - 26;
    const from =
      layout.dense || !frame.contexts.size
        ? layout.xEnd + 4
        : layout.notes.x + frame.heads.length * CONTEXT + 2;
    this.put("arrow", `wid-arrow ${through ? "far" : ""}`, [
      from,
      middle - 4,
      Math.max(10, x - 12 - from),
      8,
    ]);
    this.put("bracket", "wid-bracket", [
      x - 12,
      Math.min(top, middle - 8),
      3,
      (listing.length + said.length) * LINE + 20,
    ]);
    this.text("next", "soft strong", x, top, width, `${VIEW.labels.next}${through}`);
    listing.forEach((candidate, k) => {
      const node = this.put(`n${k}`, `wid-candidate ${candidate.chosen ? "chosen" : ""}`, [
        x - 7,
        top + 20 + k * LINE,
        width,
        LINE - 1,
      ]);
      fillCandidate(node, candidate);
    });
    said.forEach((text, k) =>
      this.text(`how${k}`, "soft", x, top + 24 + (listing.length + k) * LINE, width, text, text),
    );
  }
}

/** A sum's terms, each with the key of the weight that it holds, or what is said of them. */
export function sumNodes(sum, h) {
  if (typeof sum === "string") return [sum];
  return sum.flatMap(({ column, text }, k) => {
    const node = make("span", "", text);
    node.dataset.key = `t${h}.${column}`;
    return k ? [" + ", node] : [node];
  });
}

/** Whether rows of earlier passes stand untouched in this one. */
function olderRows(frame) {
  return (
    frame.event.counted &&
    frame.columns.some((c) => !c.live && lastPassOf(frame.run, frame.event.index, c.index))
  );
}

/** The next word comes out of the last layer: said where another is shown, whose contexts go there first. */
export function throughLayers(frame) {
  const last = frame.record.model.n_layers;
  return frame.layer + 1 < last ? `, after layer ${last}` : "";
}

/** At most eight candidates, in their order, the chosen one among them. */
export function candidates(out) {
  if (out.top.length <= CANDIDATES) return out.top;
  const first = out.top.slice(0, CANDIDATES);
  return first.some((c) => c.chosen)
    ? first
    : [...first.slice(0, -1), out.top.find((c) => c.chosen)].filter(Boolean);
}

export function fillCandidate(node, candidate) {
  if (!node.firstChild) {
    node.append(make("bdi", "wid-word"), make("span", "wid-bar"), make("span", "wid-percent"));
    node.children[1].append(make("i"));
  }
  const word = visibleText(candidate.word);
  setText(node.children[0], word);
  node.children[0].title = word;
  node.children[1].firstChild.style.width = `${Math.max(1, 100 * candidate.p)}%`;
  setText(node.children[2], formatPercent(candidate.p));
  node.setAttribute("data-chosen", String(candidate.chosen));
}
