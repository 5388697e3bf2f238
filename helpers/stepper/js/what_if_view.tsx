// Draws what if: the prompt to change, the KV entries of each layer under it, and what the model says.
import VIEW from "../view.json" with { type: "json" };
import { fill, fillText, isolatedText, visibleText } from "./format.ts";
import { Button, Candidate, Legend, Parts, QUIET } from "./parts.tsx";
import { View } from "./view.tsx";
import { cellTexts, edited, KINDS, readPrompt, sayWhatIf, toldPrompt, whatIf } from "./what_if.ts";
import type { Filled, Parts as Said } from "./types";
import type { Toy } from "./toy.ts";
import type { Layer, Result, Token } from "./what_if.ts";

type Name = "word" | "number";

const WHAT = VIEW.what_if;
const OUTCOMES = ["before", "now", "mended"] as const;

/** Show the sentence where the box above it hides more than an edge; asked at each drawing. */
function sayThatItScrolls(said: HTMLElement | null) {
  const box = said?.previousElementSibling;
  if (said && box) said.hidden = box.scrollWidth <= box.clientWidth + 20;
}

export class WhatIfView extends View {
  declare toy: Toy & { numbers: Record<string, number> };
  declare before: Token[];
  declare first: Token[];
  declare numbers: Map<string, number>;
  declare now: Token[];
  declare settled: Token[];
  declare known: string;

  /** What is said under the controls. */
  complaint: Said = [WHAT.hint];
  /** The field that is half typed. */
  typing: { j: number; name: Name; text: string } | null = null;

  constructor(
    el: Element,
    data: { toy: Toy & { numbers: Record<string, number> }; before: Token[] },
    options: any,
  ) {
    super(el, options, "what_if", WHAT.label);
    this.toy = data.toy;
    this.before = data.before;
    this.first = options.now;
    this.numbers = new Map(Object.entries(data.toy.numbers));
    this.now = this.settled = this.first; // settled: without what is half typed
    this.known = `wid-known-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    this.start();
  }

  state() {
    return toldPrompt(this.now, this.first);
  }

  goTo(values: Map<string, string>) {
    const { tokens, fits } = readPrompt(values.get("words"), values.get("numbers"), this.numbers);
    this.become(tokens.length ? tokens : this.first);
    return fits ? [] : ["words", "numbers"];
  }

  stepNumber(j: number, event: KeyboardEvent) {
    const by = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    this.typed(j, "number", String(Math.round(1e6 * (this.now[j].number + by)) / 1e6), true); // 1.1 + 1 is 2.1
  }

  /** A field has a new text. What is half typed counts if it can; a wrong one is told when it is done. */
  typed(j: number, name: Name, text: string, done: boolean) {
    const now = edited(this.now, j, name, text, done ? this.numbers : null);
    const typing = done ? null : { j, name, text };
    if (now) this.become(now, typing);
    else if (done) this.refuse(name, { got: { token: text }, token: { token: this.settled[j].word } });
    else this.typing = typing;
  }

  putIn(j: number) {
    if (this.now.length === WHAT.most.words) this.refuse("full", { got: this.now.length + 1 });
    else this.become([...this.now.slice(0, j), WHAT["new word"], ...this.now.slice(j)]);
  }

  takeOut(j: number) {
    if (this.now.length === 1) return this.refuse("last");
    this.become(this.now.filter((_, i) => i !== j));
    const buttons: NodeListOf<HTMLElement> = this.root.querySelectorAll(".wid-out");
    buttons[Math.min(j, this.now.length - 1)].focus();
  }

  /** Show another prompt; a field that is being typed into is left alone. */
  become(now: Token[], typing: WhatIfView["typing"] = null) {
    this.now = now;
    this.typing = typing;
    if (!typing) this.settled = now;
    this.complaint = [WHAT.hint];
    this.keepAddress();
    this.draw();
  }

  /** Say what was got and what is expected; all is as it was before. */
  refuse(why: keyof typeof WHAT.refused, values: Filled = {}) {
    this.become(this.settled);
    this.complaint = fill(WHAT.refused[why] + WHAT["as before"], { ...WHAT.most, ...values });
    this.draw();
  }

  template() {
    const { now } = this;
    this.root.style.setProperty("--wid-many", String(now.length));
    const result = whatIf(this.toy, this.before, now);
    const marks = Object.entries(WHAT.entries).map(([state, text]) => [`wid-stored v ${state}`, "", text]);
    return (
      <>
        <div class="wid-controls">
          <div class="wid-buttons">
            <Button onClick={() => this.become(this.before)}>{WHAT.reset}</Button>
          </div>
          <p class="wid-hint" role="status">
            <Parts parts={this.complaint} />
          </p>
        </div>
        <div class="wid-rowsbox">
          <table class="wid-rows">
            <thead>
              <tr>
                <th class="wid-rowkind" />
                {now.map((_, j) => this.head(result.kinds[j], j))}
                <th class="wid-end">
                  <Button
                    class="wid-edit wid-in"
                    aria-label={WHAT.last}
                    onClick={() => this.putIn(now.length)}
                  >
                    +
                  </Button>
                </th>
              </tr>
            </thead>
            <tbody>
              {WHAT.layers.map((text, layer) => this.layer(result.layers[layer], text, layer))}
              {this.prefix(result)}
            </tbody>
          </table>
        </div>
        <p class="wid-further soft" ref={(said) => sayThatItScrolls(said)}>
          {WHAT.scrolls}
        </p>
        <Legend items={marks} />
        <p class="wid-sentence" aria-live="polite" aria-atomic="true">
          <Parts parts={sayWhatIf(result)} />
        </p>
        <div class="wid-says">{OUTCOMES.map((name) => this.outcome(WHAT.says[name], result[name]))}</div>
        <datalist id={this.known}>
          {Array.from(this.numbers, ([word, number]) => (
            <option value={word}>{number}</option>
          ))}
        </datalist>
      </>
    );
  }

  /** The head of token j: its buttons and fields. */
  head(kind: string, j: number) {
    const { word } = this.now[j];
    return (
      <th class="wid-token" scope="col" title={visibleText(word)}>
        <Button class="wid-edit wid-in" aria-label={this.label(j, "in")} onClick={() => this.putIn(j)}>
          +
        </Button>
        <Button class="wid-edit wid-out" aria-label={this.label(j, "out")} onClick={() => this.takeOut(j)}>
          ×
        </Button>
        {this.field(j, "word", kind, { list: this.known })}
        {this.field(j, "number", kind, {
          onKeyDown: (e: KeyboardEvent) => this.stepNumber(j, e),
        })}
      </th>
    );
  }

  label(j: number, name: keyof typeof WHAT.controls) {
    return fillText(WHAT.controls[name], { token: isolatedText(this.now[j].word, 24), place: j + 1 });
  }

  field(j: number, name: Name, kind: string, more: object) {
    const { typing } = this;
    const half = typing && typing.j === j && typing.name === name ? typing.text : null;
    return (
      <input
        class={`wid-${name} ${kind === "in" || kind === name ? "wid-edited" : ""}`}
        {...{ type: "text", autocomplete: "off", spellcheck: false, dir: "auto", ...QUIET, ...more }}
        aria-label={this.label(j, name)}
        value={half ?? String(this.now[j][name])}
        onFocus={(e) => e.currentTarget.select()}
        onInput={(e) => this.typed(j, name, e.currentTarget.value, false)}
        onChange={(e) => this.typed(j, name, e.currentTarget.value, true)}
      />
    );
  }

  /** A line that says what a layer's KV entries come from, and under it the entries. */
  layer(entries: Layer, text: string, layer: number) {
    return [
      <tr>
        <th class="wid-layer" colSpan={this.now.length + 2}>
          <b>{fillText(WHAT.layer, { layer: layer + 1 })}</b>
          <span>{text}</span>
        </th>
      </tr>,
      ...KINDS.map((kind) => (
        <tr>
          <th class="wid-rowkind" scope="row">
            <b class={kind}>{kind.toUpperCase()}</b>
            <i>{WHAT.parts[kind]}</i>
          </th>
          {entries[kind].map((cell) => (
            <td class={`wid-stored ${kind} ${cell.state}`} title={WHAT.entries[cell.state]}>
              {cellTexts(cell).map((part) => (
                <span>{part}</span>
              ))}
            </td>
          ))}
        </tr>
      )),
    ];
  }

  /** The rule under the entries: which of them may be kept, and which tokens are processed again. */
  prefix({ kept, rerun }: Result) {
    const rest = this.now.length - kept;
    return (
      <tr class="wid-prefix">
        <th class="wid-rowkind">
          <i>{WHAT.prefix}</i>
        </th>
        {kept > 0 && (
          <td class="wid-kept" colSpan={kept}>
            <span>{fillText(WHAT.rowcount, { kept })}</span>
          </td>
        )}
        {rest > 0 && (
          <td class="wid-again" colSpan={rest}>
            <span>{fillText(WHAT.again, { rerun })}</span>
          </td>
        )}
      </tr>
    );
  }

  /** What the model says. */
  outcome(title: string, says: Result["mended"]) {
    return (
      says && (
        <div class="wid-outcome">
          <p class="soft strong">{title}</p>
          {says.probabilities.map((p, k) => (
            <Candidate word={this.toy.vocabulary[k]} p={p} chosen={k === says.choice} />
          ))}
        </div>
      )
    );
  }
}
