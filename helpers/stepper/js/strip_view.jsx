// The cost strip: under a folded line that always says what bounds the pass, the choices, the numbers, the roofline.
import VIEW from "../view.json" with { type: "json" };
import { fillText } from "./format.js";
import { QUIET, Slider, Switch } from "./parts.jsx";
/** @typedef {{ x: number, y: number }} Place */
/** @import { Frame } from "./types" */
/** @import { Choice, Facts, Machines, Ran } from "./strip.js" */
import {
  comparedWith,
  factsOf,
  fitSentence,
  insightOf,
  placeOf,
  ranIn,
  TEXTS,
  USERS,
  workSentence,
} from "./strip.js";

const SAY = VIEW.strip;
const [WIDTH, HEIGHT] = [250, 140]; // of the roofline, CSS pixels

/** A slider over a few values, that says the chosen one.
 * @param {{ name: string, values: any[], chosen: unknown, words: string, choose: (value: any) => void }} props */
function Steps({ name, values, chosen, words, choose }) {
  return (
    <label class="wid-switch">
      {`${name} `}
      <Slider
        {...{ min: 0, max: values.length - 1, value: values.indexOf(chosen), "aria-label": name }}
        aria-valuetext={words}
        onInput={(e) => choose(values[Number(e.currentTarget.value)])}
      />
      <span class="wid-stepsaid">{words}</span>
    </label>
  );
}

/** The roof, the pass on it, and beside it, hollow, the other passes that are worth comparing with.
 * @param {{ facts: Facts, others: { name: string, place: Place }[] }} props */
function Roofline({ facts, others }) {
  /** @param {Place} place */
  const at = ({ x, y }) => [x * WIDTH, y * HEIGHT];
  /** @param {number} intensity */
  const roof = (intensity) => at(placeOf({ intensity, ridge: facts.ridge }));
  const [ridge, top] = roof(facts.ridge);
  /** @param {string} name @param {Place} place @param {string} kind */
  const dot = (name, place, kind) => {
    const [cx, cy] = at(place);
    const right = cx < WIDTH * 0.7;
    return (
      <g key={name} class={kind}>
        <circle {...{ cx, cy }} r="5" />
        <text x={cx + (right ? 9 : -4)} y={cy + 15} text-anchor={right ? "start" : "end"}>
          {name}
        </text>
      </g>
    );
  };
  return (
    <svg class="wid-roof" viewBox={`-6 -14 ${WIDTH + 12} ${HEIGHT + 34}`} role="img" aria-label={SAY.roof}>
      <path d={`M${roof(0.1).join(" ")}L${ridge} ${top}L${roof(1e5).join(" ")}`} />
      <text x={WIDTH} y={top - 6} text-anchor="end">
        {SAY.bounds.arithmetic}
      </text>
      <text x={ridge - 12} y={top + 4} text-anchor="end">
        {SAY.memory}
      </text>
      {others.map(({ name, place }) => dot(name, place, "other"))}
      {dot(SAY.this, placeOf(facts), "this")}
      <text x={WIDTH / 2} y={HEIGHT + 16} text-anchor="middle">
        {fillText(SAY.axis, { ridge: Math.round(facts.ridge) })}
      </text>
    </svg>
  );
}

/** Softmax(Q Kᵀ ÷ √d + mask) V, and under each letter its sizes in this pass, for one head.
 * @param {{ frame: Frame, ran: Ran }} props */
function Formula({ frame, ran }) {
  const { k_dim: d, v_dim, scale } = frame.record.model;
  const [T, S] = [ran.tokens, ran.tokens + ran.before];
  /** @param {string} letter @param {string} size */
  const part = (letter, size) => (
    <span class="wid-term">
      <b>{letter}</b>
      <small>{size}</small>
    </span>
  );
  return (
    <p class="wid-formula" aria-label={fillText(SAY.formula, { T, S, d, v: v_dim })}>
      {"softmax( "}
      {part("Q", `${T} × ${d}`)}
      {" · "}
      {part("Kᵀ", `${d} × ${S}`)}
      {scale !== 1 && " ÷ √d"}
      {" + "}
      {part("mask", `${T} × ${S}`)}
      {" ) · "}
      {part("V", `${S} × ${v_dim}`)}
      {" = "}
      {part(SAY.contexts, `${T} × ${v_dim}`)}
    </p>
  );
}

/** The strip of one pass. `choice` is what the reader has chosen, `choose` takes what he changes of it.
 * @param {{ frame: Frame, machines: Machines, choice: Choice, choose: (wanted: Partial<Choice>) => void }} props */
export function CostStrip({ frame, machines, choice, choose }) {
  const ran = ranIn(frame.event, frame.run.keeps);
  const [model, card] = [machines.models[choice.model], machines.cards[choice.card]];
  const facts = factsOf(ran, model, card, choice);
  const { work, least, bound } = workSentence(facts);
  const others = comparedWith(frame).map(([name, other]) => ({
    name,
    place: placeOf(factsOf(other, model, card, choice)),
  }));
  /** @param {{ name: string }[]} list */
  const names = (list) => list.map((one) => one.name);
  const lists = [
    {
      ...{ label: SAY["as if"], names: names(machines.models), chosen: choice.model },
      choose: (/** @type {number} */ i) => choose({ model: i }),
    },
    {
      ...{ label: SAY.on, names: names(machines.cards), chosen: choice.card },
      choose: (/** @type {number} */ i) => choose({ card: i }),
    },
  ];
  const text = choice.text === null ? SAY.recorded : fillText(SAY.tokens, { tokens: choice.text });
  return (
    <details class="wid-cost">
      <summary {...QUIET}>
        <b>{SAY.title}</b>
        {` ${fillText(SAY.short, { model: model.name, card: card.name, least })} `}
        <b data-bound={facts.bound}>{bound}</b>
      </summary>
      <div class="wid-controls">
        {lists.map((list) => (
          <Switch {...list} most={0} />
        ))}
        <Steps
          name={SAY.text}
          values={TEXTS}
          chosen={choice.text}
          words={text}
          choose={(t) => choose({ text: t })}
        />
        <Steps
          name={SAY.users}
          values={USERS}
          chosen={choice.users}
          words={String(choice.users)}
          choose={(u) => choose({ users: u })}
        />
      </div>
      <div class="wid-costs">
        <div>
          <p aria-live="polite">
            {`${work} ${SAY.least} `}
            <b>{least}</b>
            {`, ${SAY.bound} `}
            <b>{bound}</b>.
          </p>
          <p>{insightOf(ran, facts)}</p>
          <p class="soft">{fitSentence(facts, model, card)}</p>
          <p class="soft">{SAY.left}</p>
          {model.experts && (
            <p class="soft">{fillText(SAY.experts, { of: model.experts[0], chosen: model.experts[1] })}</p>
          )}
          <Formula frame={frame} ran={ran} />
        </div>
        <Roofline facts={facts} others={others} />
      </div>
    </details>
  );
}
