// Again, without the cache: a guess, then the same words in two lanes on one clock, and how long each of them let wait.
import VIEW from "../../view.json" with { type: "json" };
import { stepTime } from "../cost.ts";
import { fill, fillText, formatUnit, runningText } from "../format.ts";
import { Button, Parts, Word } from "../parts.tsx";
import { slowness, time } from "./drawer.tsx";
import {
  EOS,
  SHOWN,
  blocksAt,
  doneAt,
  halvesOf,
  timeOf,
  tokensRun,
  tokensWithout,
  windowAt,
} from "./writing.ts";
import type { Marks, Writer } from "./parts";
import type { Lane as Run } from "./writing.ts";

const { again: AGAIN, most: MOST } = VIEW.live;
const GUESSES = AGAIN.guesses as [string, number][];

/** In a race each lane has its own words: the text is the prompt. */
export const raceMark = ({ plain, prompt }: Writer): Marks | null =>
  plain && ((i) => (i < prompt.length ? undefined : null));

export function Again({ view }: { view: Writer }) {
  const { lane, plain, prompt, playing } = view;
  const values = { run: tokensRun(lane), prompt: prompt.length, out: lane.passes.length };
  if (!plain)
    return (
      <div class="wid-act">
        <p>{fillText(AGAIN.ask, values)}</p>
        <div class="wid-guesses" role="group" aria-label={AGAIN.guess}>
          {GUESSES.map(([name, times]) => (
            <Button onClick={() => view.race(times)}>{name}</Button>
          ))}
        </div>
      </div>
    );
  return (
    <div class="wid-act">
      {!playing && <Said {...{ view, plain }} />}
      {view.lanes.map((one, i) => (
        <Lane {...{ view, plain, lane: one, cache: i === 0 }} />
      ))}
      <p class="soft">
        {AGAIN.blocks} {!view.still.matches && slowness(view, AGAIN.clock)}
      </p>
      {!playing && <More {...{ view, plain }} />}
    </div>
  );
}

/** A lane: its words as they come, and a block for each of them on the clock that both lanes share. */
function Lane({ view, plain, lane, cache }: { view: Writer; plain: Run; lane: Run; cache: boolean }) {
  const done = doneAt(lane, view.t);
  const values = { done, out: view.lane.passes.length, run: tokensRun(lane, done) };
  const whole = view.lane.passes.map(({ said }, i) => (i < done ? lane.passes[i].said : said));
  const from = windowAt(done);
  return (
    <div class={`wid-runner ${cache ? "" : "without"}`}>
      <h3>{AGAIN.lanes[cache ? 0 : 1]}</h3>
      <p class="soft">{fillText(AGAIN.out, { ...values, time: time(Math.min(view.t, timeOf(lane))) })}</p>
      <p class="wid-reply-said" aria-hidden="true">
        {from > 0 && "… "}
        {runningText(whole.slice(from, from + SHOWN)).map(({ text, blank }, i) => [
          i > 0 && blank && " ",
          text && <Word text={text} class={`wid-word ${from + i < done ? "" : "ahead"}`} />,
        ])}
      </p>
      <div class="wid-blocks" aria-hidden="true">
        {blocksAt({ lane: view.lane, plain, prompt: view.prompt, t: view.t }, lane, cache).map(
          ({ left, width, height, now }) => (
            <i class={now ? "now" : ""} style={`left:${left}%;--wide:${width}%;height:${height}%`} />
          ),
        )}
      </div>
    </div>
  );
}

function valuesOf({ lane, guess, prompt }: Writer, plain: Run) {
  const [run, all, last] = [tokensRun(lane), tokensRun(plain), plain.passes.at(-1)];
  return {
    ...{ run, all, out: plain.passes.length, prompt: prompt.length, times: Math.round(all / run) },
    said: GUESSES.find(([, times]) => times === guess)?.[0],
    should: tokensWithout(prompt.length, lane.passes.length),
    ...{ ms: time(timeOf(lane)), msPlain: time(timeOf(plain)) },
    ...{ second: plain.passes[1]?.tokensRun, lastRun: last?.tokensRun },
  };
}

function Said({ view, plain }: { view: Writer; plain: Run }) {
  const { lane } = view;
  const values = valuesOf(view, plain);
  const whole = plain.passes.length === lane.passes.length;
  const same = plain.passes.every((pass, i) => pass.said.token === lane.passes[i].said.token);
  const stage = whole ? (same ? "done" : "apart") : "stopped";
  return (
    <p class="wid-sentence" aria-live="polite">
      {fillText(AGAIN.say[stage], values)} {stage === "done" && values.said && fillText(AGAIN.said, values)}
    </p>
  );
}

/** How long the first half of the tokens took, and as many at the end: what grew, or that the machine was busy. */
function halves(plain: Run) {
  const { half, first, last } = halvesOf(plain);
  const values = { half, firstTime: time(first), lastTime: time(last) };
  return fillText(AGAIN.halves.say + AGAIN.halves[last > first ? "longer" : "busy"], values);
}

function More({ view, plain }: { view: Writer; plain: Run }) {
  const { noEos, long } = view;
  const [button, why] = AGAIN.long;
  const values = { out: MOST.long, token: { token: EOS } };
  return (
    <>
      {plain.passes.length > 3 && (
        <p>
          {fillText(AGAIN.last, valuesOf(view, plain))} {halves(plain)}
        </p>
      )}
      {long && !noEos && (
        <>
          <div class="wid-guesses">
            <Button onClick={() => long.call(view)}>{fillText(button, values)}</Button>
          </div>
          <p class="soft">
            <Parts parts={fill(why, values)} />
          </p>
        </>
      )}
      <p class="soft">{card(view)}</p>
    </>
  );
}

/** What the page's clock does not show: on a card the prompt costs little more than a word. */
function card({ data, prompt, lane }: Writer) {
  const { compared, card } = data;
  const model = compared[compared.length - 1];
  const least = (tokens: number, before: number) =>
    formatUnit(stepTime(model, card, before, { newTokens: tokens }).total, "s");
  return fillText(AGAIN.card, {
    prompt: prompt.length,
    model: model.name,
    card: card.name,
    pause: least(prompt.length, 0),
    word: least(1, prompt.length),
    here: time(lane.passes[0].ms),
  });
}
