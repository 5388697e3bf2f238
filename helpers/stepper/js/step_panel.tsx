// The panel of a step, and the controls of its case: StepTime is made of both, and so is the lab.
import { Component, type ComponentChildren } from "preact";
import VIEW from "../view.json" with { type: "json" };
import {
  cardNumbers,
  cardOf,
  FIELDS,
  stopAt,
  stopsOf,
  typed,
  type Case,
  type Field,
  type Machines,
} from "./case.ts";
import { fillText, formatUnit } from "./format.ts";
import { modelOf } from "./model_of.ts";
import { Picker, QUIET, Sentence, Slider, Switch } from "./parts.tsx";
import { answerOf, barsOf, factsOf, leftOut, roomOf, workOf } from "./step_time.ts";
import type { Card, Model, Term } from "./cost.ts";
import type { Facts, Pass, Piece } from "./step_time.ts";

/** Takes what the reader changes of a case. */
type Choose = (wanted: Partial<Case>) => void;

const SAY = VIEW.step_time;
const MORE = ["newTokens", "cards", "collective", "bandwidthReached", "computeReached"] as Field[];
const BARS = ["step", "memory", "compute"] as const;

/** A number: a slider, and beside it the same typed. `none` is what stands for no number, where that can be. */
class NumberField extends Component<
  { field: Field; name: string; value: number | null; none?: string; choose: (x: number | null) => void },
  { text: string | null }
> {
  /** as it is typed; null: as it is */
  state: { text: string | null } = { text: null };

  type(text: string) {
    this.setState({ text });
    const x = typed(this.props.field, text);
    if (x !== null) this.props.choose(x);
    else if (text === "" && this.props.none) this.props.choose(null);
  }

  render() {
    const { field, name, value, none, choose } = this.props;
    const { least, most } = FIELDS[field];
    const stops = [...(none ? [null] : []), ...stopsOf(field)];
    const written = value === null ? "" : value.toLocaleString("en", { maximumFractionDigits: 6 });
    const { text } = this.state;
    const wrong = text && typed(field, text) === null;
    return (
      <label class="wid-field">
        <span>{name}</span>
        <Slider
          {...{ min: 0, max: stops.length - 1, value: stopAt(stops, value), "aria-label": name }}
          aria-valuetext={written || none}
          onInput={(e) => choose(stops[Number(e.currentTarget.value)])}
        />
        <input
          {...{
            inputMode: "decimal",
            value: text ?? written,
            placeholder: none,
            autocomplete: "off",
            ...QUIET,
          }}
          aria-label={fillText(SAY.typed, { name })}
          aria-invalid={wrong ? "true" : undefined}
          onInput={(e) => this.type(e.currentTarget.value)}
          onBlur={() => this.setState({ text: null })}
        />
        {wrong && <em role="alert">{fillText(SAY.range, { name, got: text, least, most })}</em>}
      </label>
    );
  }
}

/** A model's config.json, pasted. */
class Paste extends Component<{ choose: Choose }, { wrong: string | null }> {
  state: { wrong: string | null } = { wrong: null };

  read(text: string) {
    let wrong = null;
    if (text.trim())
      try {
        this.props.choose({ model: modelOf(parsed(text)) });
      } catch (error) {
        wrong = (error as Error).message;
      }
    this.setState({ wrong });
  }

  render() {
    return (
      <label class="wid-paste">
        <span>{SAY.paste}</span>
        <textarea {...QUIET} rows={3} spellcheck={false} onInput={(e) => this.read(e.currentTarget.value)} />
        <em role="alert">{this.state.wrong}</em>
      </label>
    );
  }
}

function parsed(text: string) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(SAY["not read"]);
  }
}

/** A card by its numbers, which begin as those of the card that is chosen. */
class OwnCard extends Component<{ card: Card; choose: Choose }, { texts: string[] | null }> {
  state: { texts: string[] | null } = { texts: null };

  type(texts: string[]) {
    this.setState({ texts });
    const card = cardOf(texts.map((text) => Number(text.replace(/,/g, "") || NaN)));
    if (card) this.props.choose({ card });
  }

  render() {
    const { names, say, least, most } = SAY.own;
    const texts = this.state.texts ?? cardNumbers(this.props.card).map(String);
    const wrong = texts.findIndex((text) => !cardOf(Array(3).fill(Number(text.replace(/,/g, "") || NaN))));
    return (
      <>
        <p>{say}</p>
        <div class="wid-fields">
          {names.map((name, i) => (
            <label class="wid-field">
              <span>{name}</span>
              <input
                {...{ inputMode: "decimal", value: texts[i], autocomplete: "off", ...QUIET }}
                aria-invalid={wrong === i ? "true" : undefined}
                onInput={(e) => this.type(texts.with(i, e.currentTarget.value))}
                onBlur={() => this.setState({ texts: null })}
              />
              {wrong === i && (
                <em role="alert">{fillText(SAY.range, { name, got: texts[i], least, most })}</em>
              )}
            </label>
          ))}
        </div>
      </>
    );
  }
}

/** One of a table, by its name. */
function Choice({
  label,
  list,
  one,
  choose,
}: {
  label: string;
  list: { name: string }[];
  one: { name: string };
  choose: (i: number) => void;
}) {
  return (
    <label class="wid-field">
      <span>{label}</span>
      <Picker
        {...{ label, choose, most: 0, names: list.map(({ name }) => name), chosen: list.indexOf(one) }}
      />
    </label>
  );
}

/** What stands in the fold; `name` is its name, `numbers` are its fields. */
function More({
  chosen,
  choose,
  open,
  name,
  numbers,
}: {
  chosen: Case;
  choose: Choose;
  open: boolean;
  name: string;
  numbers: ComponentChildren;
}) {
  const bits = Object.keys(SAY.bits) as (keyof typeof SAY.bits)[];
  return (
    <details class="wid-more" open={open}>
      <summary {...QUIET}>{name}</summary>
      <div class="wid-fields">
        {bits.map((of) => (
          <Switch
            {...{ label: SAY.bits[of].name, names: SAY.formats.map(String) }}
            chosen={SAY.formats.indexOf(chosen[of])}
            choose={(i) => choose({ [of]: SAY.formats[i] })}
          />
        ))}
        {numbers}
        <Switch
          {...{ label: SAY.overlap.name, names: SAY.overlap.choices, chosen: chosen.overlap ? 1 : 0 }}
          choose={(i) => choose({ overlap: i === 1 })}
        />
      </div>
      <OwnCard card={chosen.card} choose={choose} />
      <Paste choose={choose} />
      <p class="soft">{SAY.explained}</p>
    </details>
  );
}

/** Model, card, tokens and users; in a fold all else that a case has, or the numbers `more` of it. `recorded`: no number
 * of tokens is one, too; `open`: whether the fold is open at first; `names`, `fold`: what a
 * number is called here, and the fold. */
export class CaseControls extends Component<{
  chosen: Case;
  machines: Machines;
  choose: Choose;
  recorded?: boolean;
  more?: Field[];
  open?: boolean;
  names?: Partial<Record<Field, string>>;
  fold?: string;
}> {
  /** A model and a card that the tables do not have: the reader may come back to them. */
  own: Model | null = null;
  ownCard: Card | null = null;

  render() {
    const { chosen, machines, choose, recorded = false, more = MORE, open = false, names = {} } = this.props;
    const { fold = SAY.more } = this.props;
    const { model, card } = chosen;
    const { models, cards } = machines;
    if (!models.includes(model)) this.own = model;
    if (!cards.includes(card)) this.ownCard = card;
    const all = this.own ? [...models, this.own] : models;
    const allCards = this.ownCard ? [...cards, this.ownCard] : cards;
    const number = (field: Field) => (
      <NumberField
        {...{ field, name: names[field] ?? FIELDS[field].name, value: chosen[field] }}
        none={recorded && field === "tokens" ? SAY.recorded : undefined}
        choose={(x) => choose({ [field]: x })}
      />
    );
    return (
      <>
        <div class="wid-fields">
          <Choice label={SAY.model} list={all} one={model} choose={(i) => choose({ model: all[i] })} />
          <Choice label={SAY.card} list={allCards} one={card} choose={(i) => choose({ card: allCards[i] })} />
          {number("tokens")}
          {number("users")}
        </div>
        <More {...{ chosen, choose, open, name: fold, numbers: more.map(number) }} />
      </>
    );
  }
}

/** A term's place in a bar. */
function piece({ term, from, share }: Piece) {
  return <i class={`wid-piece ${term}`} style={`left:${100 * from}%;width:${100 * share}%`} />;
}

/** Milliseconds by term, bandwidth and compute beside each other. */
function Bars({ facts: { step } }: { facts: Facts }) {
  const bars = barsOf(step);
  const terms = (Object.keys(SAY.short) as Term[]).filter((term) => step[term] > 0);
  return (
    <>
      <div class="wid-spans" aria-hidden="true">
        {BARS.map((name) => (
          <>
            <span>{SAY.bars[name]}</span>
            <span class={`wid-span ${name}`}>{bars[name].map(piece)}</span>
          </>
        ))}
      </div>
      <ul class="wid-legend">
        {terms.map((term) => (
          <li class={step.counted.includes(term) ? "counted" : ""}>
            <i class={`wid-piece wid-key ${term}`} />
            {`${SAY.short[term]} ${formatUnit(step[term], "s")}`}
          </li>
        ))}
      </ul>
    </>
  );
}

/** What memory holds, and who fits. */
function Room({ facts }: { facts: Facts }) {
  const { memory } = facts;
  const all = Math.max(memory.has, memory.weights + memory.kv);
  const { holds, fits } = roomOf(facts);
  const fitting = fitsIn(facts);
  return (
    <>
      <div class="wid-spans" aria-hidden="true">
        <span>{SAY.memory}</span>
        <span class="wid-span holds" style={`--has:${(100 * memory.has) / all}%`}>
          {piece({ term: "weights", from: 0, share: memory.weights / all })}
          {piece({ term: "kv_cache", from: memory.weights / all, share: memory.kv / all })}
        </span>
      </div>
      <p>{fitting ? `${holds}. ${fits}` : `${holds}.`}</p>
    </>
  );
}

const fitsIn = ({ fit, chosen }: Facts) => fit >= chosen.users;

/** What a pass takes in a case: the answer, by term, whether it fits, what is left out; the answer is spoken when it
 * changes. `children` stand under the answer; `room`: what memory holds, too, and no time for what does not fit. */
export function StepPanel({
  chosen,
  pass,
  room = true,
  children,
}: {
  chosen: Case;
  pass: Pass;
  room?: boolean;
  children?: ComponentChildren;
}) {
  const facts = factsOf(chosen, pass);
  const timed = !room || fitsIn(facts);
  return (
    <div class="wid-panel" data-bound={facts.bound} data-longest={facts.longest}>
      <Sentence parts={timed ? answerOf(facts) : [roomOf(facts).fits]} longest={[]} />
      {children}
      {timed && <Bars facts={facts} />}
      {timed && <p>{SAY.meaning[facts.bound as keyof typeof SAY.meaning]}</p>}
      {room && <Room facts={facts} />}
      <p class="soft">{[workOf(facts), ...leftOut(facts)].join(" ")}</p>
    </div>
  );
}

/** The small form: one line. */
export function StepLine({ chosen, pass }: { chosen: Case; pass: Pass }) {
  const { model, card } = chosen;
  const { step, bound, least, longest } = factsOf(chosen, pass);
  const values = { model: model.name, card: card.name, least, time: formatUnit(step.total, "s") };
  return (
    <>
      {`${fillText(SAY.line, values)} `}
      <b data-bound={bound}>{bound}</b>
      {`: ${SAY.terms[longest]}`}
    </>
  );
}
