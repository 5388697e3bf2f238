// What if: the reader changes the toy's prompt and sees which rows of a cache that was filled before go stale.
import VIEW from "../view.json" with { type: "json" };
import { fillCandidate } from "./board.js";
import { fillParts, make, makeButton, makeWith } from "./dom.js";
import { keyTexts } from "./words.js";
import { fill, fillText, formatNumber, formatPercent, isolatedText, visibleText } from "./format.js";
import { runToy, toyContexts, toySays } from "./toy.js";
import { View } from "./view.js";

const WHAT = VIEW.what_if;
const DEEPEST = WHAT.layers.length - 1;
const ALIKE = 1e-9; // of a number's size: two ways to the same sum may differ by so much
const VISIBLE = 0.001; // a difference of shares that can be read off
const FIELDS = ["word", "number"];
const TYPED = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const COSTS = { "": 0, number: 2, word: 3, one: 2 }; // of an edit: one in and one out are dearer than an exchange

function editKind(old, token) {
  return old.word !== token.word ? "word" : old.number !== token.number ? "number" : "";
}

/** Index of the token of the cache that each token of the prompt is or was exchanged for; null if it was put in. */
export function pairTokens(before, now) {
  // cost[i][j] is that of the cheapest edits which make the tokens from j on out of those from i on
  const cost = Array.from({ length: before.length + 1 }, () => Array(now.length + 1).fill(0));
  const exchanged = (i, j) => COSTS[editKind(before[i], now[j])] + cost[i + 1][j + 1];
  for (let i = before.length; i >= 0; i--)
    for (let j = now.length; j >= 0; j--)
      if (i === before.length || j === now.length)
        cost[i][j] = COSTS.one * (before.length - i + now.length - j);
      else cost[i][j] = Math.min(exchanged(i, j), COSTS.one + Math.min(cost[i + 1][j], cost[i][j + 1]));
  const from = Array(now.length).fill(null);
  for (let i = 0, j = 0; i < before.length && j < now.length;)
    if (cost[i][j] === exchanged(i, j)) from[j++] = i++;
    else if (cost[i][j] === COSTS.one + cost[i + 1][j]) i++;
    else j++;
  return from;
}

/** How many tokens from the first on are the same: a cache may keep their rows and no others. */
export function commonPrefix(before, now) {
  const differs = now.findIndex((token, i) => !before[i] || editKind(before[i], token));
  return differs < 0 ? now.length : differs;
}

function sameNumbers(a, b) {
  return [a].flat().every((x, i) => Math.abs(x - [b].flat()[i]) <= ALIKE * Math.max(1, Math.abs(x)));
}

/** What becomes of the rows of a cache that holds `before` when the prompt is `now`: lists of {word, number}. */
export function whatIf(toy, before, now) {
  const carried = [before, now].map((tokens) => tokens.map((token) => token.number));
  const [old, fresh] = carried.map((numbers) => runToy(toy, numbers, DEEPEST + 1));
  const from = pairTokens(before, now);
  const kept = commonPrefix(before, now);
  const says = toySays(toy, fresh.contexts);
  const compare = (rows, were) =>
    rows.map((row, j) => {
      if (from[j] === null) return { now: row, was: null, state: "new" };
      const was = were[from[j]];
      return { now: row, was, state: !sameNumbers(row, was) ? "stale" : j < kept ? "kept" : "same" };
    });
  return {
    tokens: [before, now],
    from,
    kinds: from.map((i, j) => (i === null ? "in" : editKind(before[i], now[j]))),
    out: before.filter((_, i) => !from.includes(i)),
    kept,
    rerun: Math.max(1, now.length - kept), // the last in any case: the cache holds no logits
    layers: fresh.rows.map(({ k, v }, layer) => ({
      k: compare(k, old.rows[layer].k),
      v: compare(v, old.rows[layer].v),
    })),
    before: toySays(toy, old.contexts),
    now: says,
    mended: mended(toy, old.rows, fresh.rows, from, says),
  };
}

/** What it says if layer 1's rows are made again and of layer 2's only the last; null if nobody could tell. */
function mended(toy, old, fresh, from, now) {
  const { k, v } = fresh[DEEPEST];
  if (old[DEEPEST].v.length !== v.length || from.some((i, j) => i !== j)) return null;
  const says = toySays(toy, toyContexts(toy, k, [...old[DEEPEST].v.slice(0, -1), v.at(-1)]));
  return says.probabilities.some((p, i) => Math.abs(p - now.probabilities[i]) > VISIBLE) ? says : null;
}

/** What was changed, as parts of a sentence. */
function sayChanges({ from, kinds, out, tokens: [before, now] }) {
  const changed = kinds.filter(Boolean);
  const put = changed.filter((kind) => kind === "in").length;
  if (changed.length + out.length > 1)
    return fill(WHAT.changes.many, { edited: changed.length - put, put, out: out.length });
  const j = kinds.findIndex(Boolean);
  const [old, token] = [before[from[j]] ?? out[0], now[j]];
  const numbers = { now: formatNumber(token?.number), was: formatNumber(old?.number) };
  const words = { token: { token: token?.word }, old: { token: old?.word } };
  return fill(WHAT.changes[changed[0] ?? "out"], { ...words, ...numbers });
}

/** Which rows went stale, layer by layer. */
function sayStale(layers) {
  const said = layers.flatMap((rows, layer) =>
    Object.entries(rows).map(([kind, cells]) => {
      const many = cells.filter((cell) => cell.state === "stale").length;
      return many ? fillText(WHAT.stale[layer][kind], { many }) : "";
    }),
  );
  return said.filter(Boolean).join(" ") || WHAT.fresh;
}

/** The whole sentence under the rows, as parts. */
export function sayWhatIf(result) {
  const { kept, rerun, layers, mended, tokens } = result;
  const [before, now] = tokens;
  if (kept === now.length && kept === before.length) return [WHAT.unchanged];
  const cells = layers.flatMap(({ k, v }) => [k, v]);
  const lucky = now.filter((_, j) => cells.every((row) => row[j].state === "same")).length;
  const said = [sayStale(layers), fillText(WHAT.kept[kept < now.length ? "some" : "all"], { kept, rerun })];
  if (lucky) said.push(fillText(WHAT.lucky, { lucky }));
  const parts = [...sayChanges(result), ` ${said.join(" ")}`];
  if (!mended) return parts;
  const wrong = formatPercent(mended.probabilities[mended.choice]);
  return [...parts, " ", ...fill(WHAT.trap, { word: { token: mended.word }, wrong })];
}

/** A row's number or numbers, and under them what became of it, in words. */
export function cellTexts({ now, was, state }) {
  const write = (row) => (Array.isArray(row) ? keyTexts("toy", row).join(" · ") : formatNumber(row));
  if (state !== "stale") return [write(now), state === "new" ? WHAT.rows.new : ""];
  if (write(now) === write(was)) return [write(now), was < now ? WHAT.less : WHAT.more];
  return [write(now), fillText(WHAT.was, { was: write(was) })];
}

/** A number as a reader types it; null if it is none, or over the most. */
export function typedNumber(text) {
  const plain = text.trim().replace("−", "-");
  const number = TYPED.test(plain) ? Number(plain) + 0 : NaN; // −0 is 0
  return Math.abs(number) <= WHAT.most.number ? number : null;
}

/** The prompt that an address tells: as many tokens as are right from the first on; whether those are all. */
export function readPrompt(words, numbers, known) {
  const [texts, carried] = [words, numbers].map((list) => list?.split(",") ?? []);
  const tokens = texts.map((text, i) => {
    const word = text.replace(/%2C/g, ",").replace(/%25/g, "%");
    return { word, number: i < carried.length ? typedNumber(carried[i]) : (known.get(word) ?? null) };
  });
  const wrong = tokens.findIndex((t, i) => !t.word.trim() || t.number === null || i >= WHAT.most.words);
  const right = wrong < 0 ? tokens : tokens.slice(0, wrong);
  return { tokens: right, fits: right.length === texts.length && texts.length === carried.length };
}

export class WhatIfView extends View {
  constructor(el, data, options) {
    super(el, options, "what_if", WHAT.label);
    Object.assign(this, { toy: data.toy, before: data.before, first: options.now, columns: [] });
    this.complaint = [WHAT.hint];
    this.numbers = new Map(Object.entries(data.toy.numbers));
    this.now = this.settled = this.first; // settled: without what is half typed
    this.build();
    this.start();
  }

  state() {
    const { first, now } = this;
    const moved = commonPrefix(first, now) < Math.max(first.length, now.length);
    const words = now.map(({ word }) => word.replace(/[%,]/g, encodeURIComponent)).join();
    return { words: moved ? words : null, numbers: moved ? now.map(({ number }) => number).join() : null };
  }

  goTo(values) {
    const [words, numbers] = [values.get("words"), values.get("numbers")];
    const { tokens, fits } = readPrompt(words, numbers, this.numbers);
    this.become(tokens.length ? tokens : this.first);
    return fits ? null : fillText(VIEW.labels["no such"], { names: "words, numbers" });
  }

  build() {
    this.hint = Object.assign(make("p", "wid-hint"), { role: "status" });
    this.sentence = Object.assign(make("p", "wid-sentence"), { ariaLive: "polite" });
    this.says = make("div", "wid-says");
    const options = Array.from(this.numbers, ([word, number]) => new Option(`${number}`, word));
    this.known = makeWith("datalist", "", [...options]);
    this.known.id = `wid-known-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    const last = makeButton("+", "wid-edit wid-in", () => this.putIn(this.now.length));
    last.ariaLabel = WHAT.last;
    this.end = makeWith("th", "wid-end", [last]);
    this.body = make("tbody");
    const heads = makeWith("thead", "", [makeWith("tr", "", [make("th", "wid-rowkind"), this.end])]);
    const legend = Object.entries(WHAT.rows).map(([state, text]) =>
      makeWith("li", "", [make("span", `wid-stored v ${state} wid-key`), text]),
    );
    const reset = makeButton(WHAT.reset, "", () => this.become(this.before));
    this.root.append(
      makeWith("div", "wid-controls", [makeWith("div", "wid-buttons", [reset]), this.hint]),
      makeWith("div", "wid-rowsbox", [makeWith("table", "wid-rows", [heads, this.body])]),
      makeWith("ul", "wid-legend", [...legend]),
      ...[this.sentence, this.says, this.known],
    );
  }

  /** The head of token j: its buttons and fields. */
  addColumn(j) {
    const controls = [
      makeButton("+", "wid-edit wid-in", () => this.putIn(j)),
      makeButton("×", "wid-edit wid-out", () => this.takeOut(j)),
      ...FIELDS.map((name) => this.buildField(j, name)),
    ];
    const head = Object.assign(makeWith("th", "wid-token", [...controls]), { scope: "col" });
    this.end.before(head);
    this.columns.push({ head, controls });
  }

  buildField(j, name) {
    const field = make("input", `wid-${name}`);
    Object.assign(field, { type: "text", autocomplete: "off", spellcheck: false, dir: "auto" });
    if (name === "word") field.setAttribute("list", this.known.id);
    else field.addEventListener("keydown", (event) => this.stepNumber(j, event));
    field.addEventListener("focus", () => field.select());
    field.addEventListener("input", () => this.typed(j, name, field, false));
    field.addEventListener("change", () => this.typed(j, name, field, true));
    return field;
  }

  stepNumber(j, event) {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.target.value = Math.round(1e6 * (this.now[j].number + by)) / 1e6; // 1.1 + 1 is 2.1
    this.typed(j, "number", event.target, true);
  }

  /** A field has a new text. What is half typed counts if it can; a wrong one is told when it is done. */
  typed(j, name, field, done) {
    const text = field.value;
    const change = name === "word" ? { word: text } : { number: typedNumber(text) };
    if (done && name === "word" && this.numbers.has(text)) change.number = this.numbers.get(text);
    this.typing = done ? null : field;
    if (change.number !== null && change.word?.trim() !== "")
      this.become(
        this.now.map((token, i) => (i === j ? { ...token, ...change } : token)),
        this.typing,
      );
    else if (done) this.refuse(name, { got: { token: text }, token: { token: this.settled[j].word } });
  }

  putIn(j) {
    if (this.now.length === WHAT.most.words) this.refuse("full", { got: this.now.length + 1 });
    else this.become([...this.now.slice(0, j), WHAT["new word"], ...this.now.slice(j)]);
  }

  takeOut(j) {
    if (this.now.length === 1) return this.refuse("last");
    this.become(this.now.filter((_, i) => i !== j));
    this.columns[Math.min(j, this.now.length - 1)].controls[1].focus();
  }

  /** Show another prompt; a field that is being typed into is left alone. */
  become(now, typing = null) {
    this.now = now;
    this.typing = typing;
    if (!typing) this.settled = now;
    this.complaint = [WHAT.hint];
    this.keepAddress();
    if (this.width > 0) this.draw();
  }

  /** Say what was got and what is expected; all is as it was before. */
  refuse(why, values = {}) {
    this.become(this.settled);
    this.complaint = fill(WHAT.refused[why], { ...WHAT.most, ...values });
    this.draw();
  }

  draw() {
    this.colours();
    const { now, columns } = this;
    this.root.style.setProperty("--wid-many", now.length);
    while (columns.length < now.length) this.addColumn(columns.length);
    while (columns.length > now.length) columns.pop().head.remove();
    const result = whatIf(this.toy, this.before, now);
    columns.forEach((column, j) => this.drawHead(column, result.kinds[j], j));
    this.body.replaceChildren(...WHAT.layers.flatMap((text, layer) => this.layerRows(result, text, layer)));
    this.body.append(this.prefixRow(result));
    fillParts(this.hint, this.complaint);
    fillParts(this.sentence, sayWhatIf(result));
    const outcomes = ["before", "now", "mended"].filter((name) => result[name]);
    this.says.replaceChildren(...outcomes.map((name) => this.outcome(WHAT.says[name], result[name])));
  }

  drawHead({ head, controls }, kind, j) {
    const { word, number } = this.now[j];
    const values = { token: isolatedText(word, 24), place: j + 1 };
    const texts = [null, null, word, String(number)];
    controls.forEach((node, k) => {
      node.ariaLabel = fillText(WHAT.controls[k], values);
      if (texts[k] === null) return;
      if (node !== this.typing && node.value !== texts[k]) node.value = texts[k];
      node.classList.toggle("wid-edited", kind === "in" || kind === FIELDS[k - 2]);
    });
    head.title = visibleText(word);
  }

  layerRows({ layers }, text, layer) {
    const rows = Object.entries(layers[layer]).map(([kind, cells]) => {
      const name = makeWith("th", "wid-rowkind", [make("b", kind, kind.toUpperCase()), WHAT.parts[kind]]);
      const shown = cells.map((cell) => {
        const texts = cellTexts(cell).map((part) => make("span", "", part));
        const node = makeWith("td", `wid-stored ${kind} ${cell.state}`, [...texts]);
        return Object.assign(node, { title: WHAT.rows[cell.state] });
      });
      return makeWith("tr", "", [Object.assign(name, { scope: "row" }), ...shown]);
    });
    const number = make("b", "", fillText(WHAT.layer, { layer: layer + 1 }));
    const caption = makeWith("th", "wid-layer", [number, make("span", "", text)]);
    return [makeWith("tr", "", [Object.assign(caption, { colSpan: this.now.length + 2 })]), ...rows];
  }

  /** The rule under the rows: which of them may be kept, and which tokens run again. */
  prefixRow({ kept, rerun }) {
    const cells = [
      [kept, makeWith("td", "wid-kept", [make("span", "", fillText(WHAT.rowcount, { kept }))])],
      [
        this.now.length - kept,
        makeWith("td", "wid-again", [make("span", "", fillText(WHAT.again, { rerun }))]),
      ],
    ].map(([colSpan, cell]) => (colSpan ? Object.assign(cell, { colSpan }) : ""));
    return makeWith("tr", "wid-prefix", [make("th", "wid-rowkind", WHAT.prefix), ...cells]);
  }

  outcome(title, { probabilities, choice }) {
    const candidates = probabilities.map((p, k) => {
      const node = make("div", `wid-candidate ${k === choice ? "chosen" : ""}`);
      fillCandidate(node, { word: this.toy.vocabulary[k], p, chosen: k === choice });
      return node;
    });
    return makeWith("div", "wid-outcome", [make("p", "soft strong", title), ...candidates]);
  }
}
