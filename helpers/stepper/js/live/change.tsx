// Change a word: which of the kept entries are stale, by their numbers, and how the model goes on with them and without.
import VIEW from "../../view.json" with { type: "json" };
import { fill, fillText, runningText } from "../format.ts";
import { Parts, QUIET, Word } from "../parts.tsx";
import { EOS, staleEntries } from "./writing.ts";
import type { Changed, Diary, Marks, Token } from "./parts";

const { change: CHANGE } = VIEW.live;

/** A text, which of its words is exchanged, and for what. */
export type Exchange = { text: Token[]; at: number; to: string };
/** What that did; `at` is -1 where there is nothing to exchange. */
type Found = Exchange & { answer: Changed } & ReturnType<typeof staleEntries>;

/** Words that may stand in the place of one: those of its kind. */
const kindOf = (view: Diary, text: string) => view.data.kinds.find((kind) => kind.includes(text));

/** The text whose KV entries are kept: up to where the diary is signed. */
function textOf(view: Diary) {
  const all = [...view.prompt, ...view.out].filter(({ text }) => text !== EOS);
  const by = all.findLastIndex(({ text }) => text === view.data.until);
  return by > 0 ? all.slice(0, by + 1) : all;
}

export async function findChange(view: Diary) {
  const first = firstExchange(view, textOf(view));
  return first.at < 0 ? first : exchange(view, first);
}

/** At first the last name of the prompt is exchanged for another; `at` is -1 where there is nothing to exchange. */
export function firstExchange(view: Diary, text: Token[]): Exchange {
  const names = view.data.kinds[0];
  const of = (test: (text: string) => unknown) =>
    text.findLastIndex(({ text }, i) => i < view.prompt.length && test(text));
  const name = of((word) => names.includes(word));
  const at = name >= 0 ? name : of((word) => kindOf(view, word));
  if (at < 0) return { text, at, to: "" };
  const others = (kindOf(view, text[at].text) ?? []).filter((word) => !text.some((one) => one.text === word));
  const to = others.includes(view.data.other) ? view.data.other : others[0];
  return { text, at, to };
}

/** Put another word in a word's place, and ask what that does. */
async function exchange(view: Diary, { text, at, to }: Exchange) {
  const before = text.map(({ id }) => id);
  const now = before.with(at, view.words?.ids.get(to) ?? 0);
  const settings = { ...view.settings, temperature: 0 };
  const answer = await view.talk?.ask({ do: "change", before, now, steps: CHANGE.steps, settings });
  return {
    text,
    at,
    to,
    ...(answer.op === "failed" ? { failed: answer.say } : { answer, ...staleEntries(answer) }),
  };
}

export const changeMark = (view: Diary, found: Found): Marks =>
  exchangeMark(view, found, (other) => view.find("change", exchange(view, other)));

/** What a word of the text is: one that can be exchanged, the one that is, neither, or after those that can be. */
export function exchangeMark(view: Diary, found: Exchange, put: (other: Exchange) => unknown): Marks {
  return (i) => {
    if (i >= found.text.length) return null;
    const kind = kindOf(view, found.text[i].text);
    if (!kind) return undefined;
    const to = kind[(kind.indexOf(found.text[i].text) + 1) % kind.length];
    return {
      "aria-pressed": i === found.at,
      class: "other",
      instead: i === found.at ? found.to : undefined,
      onClick: () => put({ text: found.text, at: i, to }),
    };
  };
}

export function Change({ view, found }: { view: Diary; found: Found }) {
  const { text, at, answer, kept, stale } = found;
  if (at < 0) return <p class="wid-act">{CHANGE.none}</p>;
  const values = { kept, rest: text.length - kept, all: text.length };
  const lines = stale.map((many, layer) => fillText(CHANGE.each, { many, layer: layer + 1 }));
  const [token, end] = [text[at], text[text.length - 1]].map(({ text }) => ({ token: text }));
  return (
    <div class="wid-act">
      <p>
        <Parts parts={fill(CHANGE.now, { token, place: at + 1 })} /> <Others view={view} found={found} />{" "}
        {CHANGE.ask}
      </p>
      <div class="wid-goeson">
        <GoesOn name={fill(CHANGE.stale, { token: end })} says={answer.stale} other={answer.fresh} />
        <GoesOn name={fill(CHANGE.fresh, values)} says={answer.fresh} other={answer.stale} />
      </div>
      <Entries found={found} />
      <p class="wid-sentence" aria-live="polite">
        {fillText(CHANGE.kept, values)}
      </p>
      <p>
        {fillText(CHANGE.rerun, { ...values, lines: lines.join(", ") })} {CHANGE.compared}
      </p>
      {values.rest > 1 && <p>{CHANGE.why}</p>}
      <p>{CHANGE[String(answer.stale.tokens) === String(answer.fresh.tokens) ? "same" : "apart"]}</p>
    </div>
  );
}

function Others({ view, found: { text, at, to } }: { view: Diary; found: Found }) {
  const was = text[at].text;
  const put = (to: string) => view.find("change", exchange(view, { text, at, to }));
  return (
    <select {...QUIET} aria-label={CHANGE.by} onChange={(event) => put(event.currentTarget.value)}>
      {kindOf(view, was)?.map((word) => (
        <option selected={word === to} disabled={word === was}>
          {word}
        </option>
      ))}
    </select>
  );
}

/** A square for each token's entry in each layer: as they were, or as full as they are far from what they should be. */
function Entries({ found: { layers, text } }: { found: Found }) {
  return (
    <div aria-hidden="true">
      <div class="wid-far" style={`--many:${text.length}`}>
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
      <p class="soft wid-far-key">
        <i /> {CHANGE.legend[0]} <i class="stale" /> {CHANGE.legend[1]}
      </p>
    </div>
  );
}

/** A continuation; words that the other one has not are strong. */
function GoesOn({
  name,
  says,
  other,
}: {
  name: import("../types").Parts;
  says: Changed["stale"];
  other: Changed["stale"];
}) {
  return (
    <div>
      <p class="soft">
        <Parts parts={name} />
      </p>
      <p class="wid-reply-said">
        {runningText(says.texts.map((text) => ({ text }))).map(({ text, blank }, i) => [
          i > 0 && blank && " ",
          <Word text={text} class={`wid-word ${text === other.texts[i] ? "" : "strong"}`} />,
        ])}
      </p>
    </div>
  );
}
