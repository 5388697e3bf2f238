// Change a word: which of the kept rows are stale, by their numbers, and how the model goes on with them and without.
import VIEW from "../../view.json" with { type: "json" };
import { fill, fillText, runningText } from "../format.js";
import { Parts, QUIET, Word } from "../parts.jsx";
import { EOS, staleRows } from "./writing.js";

const { change: CHANGE } = VIEW.live;

/** Words that may stand in the place of one: those of its kind. */
const kindOf = (view, text) => view.data.kinds.find((kind) => kind.includes(text)) ?? null;

/** The text whose rows are kept: up to where the diary is signed. */
function textOf(view) {
  const all = [...view.prompt, ...view.out].filter(({ text }) => text !== EOS);
  const by = all.findLastIndex(({ text }) => text === view.data.until);
  return by > 0 ? all.slice(0, by + 1) : all;
}

/** At first the last name of the prompt is exchanged for another. */
export async function findChange(view) {
  const names = view.data.kinds[0];
  const text = textOf(view);
  const of = (/** @type {(text: string) => any} */ test) =>
    text.findLastIndex(({ text }, i) => i < view.prompt.length && test(text));
  const name = of((word) => names.includes(word));
  const at = name >= 0 ? name : of((word) => kindOf(view, word));
  if (at < 0) return { text, at: -1 };
  const others = kindOf(view, text[at].text).filter((word) => !text.some((one) => one.text === word));
  const to = others.includes(view.data.other) ? view.data.other : others[0];
  return exchange(view, { text, at, to });
}

/** Put another word in a word's place, and ask what that does. */
async function exchange(view, { text, at, to }) {
  const before = text.map(({ id }) => id);
  const now = before.with(at, view.words.ids.get(to));
  const settings = { ...view.settings, temperature: 0 };
  const answer = await view.talk.ask({ do: "change", before, now, steps: CHANGE.steps, settings });
  return {
    text,
    at,
    to,
    ...(answer.op === "failed" ? { failed: answer.say } : { answer, ...staleRows(answer) }),
  };
}

/** What a word of the text is: one that can be exchanged, the one that is, or neither. */
export function changeMark(view, found) {
  return (i) =>
    i < found.text.length &&
    kindOf(view, found.text[i].text) && {
      "aria-pressed": i === found.at,
      class: "other",
      instead: i === found.at ? found.to : undefined,
      onClick: () => {
        const kind = kindOf(view, found.text[i].text);
        const to = kind[(kind.indexOf(found.text[i].text) + 1) % kind.length];
        view.find("change", exchange(view, { text: found.text, at: i, to }));
      },
    };
}

export function Change({ view, found }) {
  const { text, at, to } = found;
  if (at < 0) return <p class="wid-act">{CHANGE.none}</p>;
  const was = text[at].text;
  return (
    <div class="wid-act">
      <p>{CHANGE.ask}</p>
      <p class="wid-exchange">
        <s>
          <Word text={was} />
        </s>
        {" → "}
        <select
          {...QUIET}
          aria-label={CHANGE.by}
          onChange={(event) =>
            view.find("change", exchange(view, { text, at, to: event.currentTarget.value }))
          }
        >
          {kindOf(view, was).map((word) => (
            <option selected={word === to} disabled={word === was}>
              {word}
            </option>
          ))}
        </select>
      </p>
      <Rows found={found} />
      <p class="wid-sentence" aria-live="polite">
        <Parts parts={sentence(found)} />
      </p>
      <div class="wid-goeson">
        <GoesOn name={CHANGE.stale} says={found.answer.stale} other={found.answer.fresh} />
        <GoesOn
          name={fillText(CHANGE.fresh, { rerun: text.length - found.kept })}
          says={found.answer.fresh}
          other={found.answer.stale}
        />
      </div>
      <p>
        {CHANGE[String(found.answer.stale.tokens) === String(found.answer.fresh.tokens) ? "same" : "apart"]}
      </p>
    </div>
  );
}

/** A square for each token's rows in each layer: as they were, or as dark as they are far from what they should be. */
function Rows({ found: { layers, text } }) {
  return (
    <div class="wid-far" style={`--many:${text.length}`} aria-hidden="true">
      {layers.map((line, layer) => [
        <span>{fillText(CHANGE.layer, { layer: layer + 1 })}</span>,
        line.map((far, i) => (
          <i
            title={`${text[i].text}: ${far.toPrecision(2)}`}
            class={far > 0 ? "stale" : ""}
            style={far > 0 ? `--far:${(15 + 85 * Math.sqrt(Math.min(1, far))).toFixed(0)}%` : ""}
          />
        )),
      ])}
    </div>
  );
}

function sentence({ kept, stale, text, layers }) {
  const rest = text.length - kept;
  const deep = layers.at(-1).map((far, i) => ({ far, i }));
  const worst = deep.sort((a, b) => b.far - a.far)[0];
  const lines = stale.map((many, layer) => fillText(CHANGE.each, { many, layer: layer + 1 }));
  return [
    ...fill(CHANGE.kept, { kept, rest }),
    ` ${fillText(CHANGE.lines, { lines: lines.join(", ") })} `,
    ...fill(CHANGE.worst, { layer: layers.length, token: { token: text[worst.i].text }, place: worst.i + 1 }),
  ];
}

/** A continuation; words that the other one has not are strong. */
function GoesOn({ name, says, other }) {
  return (
    <div>
      <p class="soft">{name}</p>
      <p class="wid-reply-said">
        {runningText(says.texts.map((text) => ({ text }))).map(({ text, blank }, i) => [
          i > 0 && blank && " ",
          <Word text={text} class={`wid-word ${text === other.texts[i] ? "" : "strong"}`} />,
        ])}
      </p>
    </div>
  );
}
