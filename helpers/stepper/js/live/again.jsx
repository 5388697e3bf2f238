// Again, without the cache: a guess, then the same words in two lanes on one clock, and how long each of them let wait.
import VIEW from "../../view.json" with { type: "json" };
import { secondsOf, workOfPass } from "../cost.js";
import { fill, fillText, runningText } from "../format.js";
import { Button, Parts, Word } from "../parts.jsx";
import { formatUnit } from "../strip.js";
import { slowness, time } from "./drawer.jsx";
import { EOS, blocksAt, doneAt, timeOf, tokensRun, tokensWithout } from "./writing.js";

const { again: AGAIN, most: MOST } = VIEW.live;

/** In a race each lane has its own words: the text is the prompt. */
export const raceMark = ({ plain, prompt }) => plain && ((i) => (i < prompt.length ? undefined : null));

export function Again({ view }) {
  const { lane, plain, prompt, playing } = view;
  const values = { run: tokensRun(lane), prompt: prompt.length, words: lane.passes.length };
  if (!plain)
    return (
      <div class="wid-act">
        <p>{fillText(AGAIN.ask, values)}</p>
        <div class="wid-guesses" role="group" aria-label={AGAIN.guess}>
          {AGAIN.guesses.map(([name, times]) => (
            <Button onClick={() => view.race(times)}>{name}</Button>
          ))}
        </div>
      </div>
    );
  return (
    <div class="wid-act">
      {!playing && <Said view={view} />}
      {view.lanes.map((one, i) => (
        <Lane view={view} lane={one} cache={i === 0} />
      ))}
      <p class="soft">
        {AGAIN.blocks} {!view.still.matches && slowness(view, AGAIN.clock)}
      </p>
      {!playing && <More view={view} />}
    </div>
  );
}

/** A lane: its words as they come, and a block for each of them on the clock that both lanes share. */
function Lane({ view, lane, cache }) {
  const done = doneAt(lane, view.t);
  const values = { done, words: view.lane.passes.length, run: tokensRun(lane, done) };
  const whole = view.lane.passes.map(({ said }, i) => (i < done ? lane.passes[i].said : said));
  return (
    <div class={`wid-runner ${cache ? "" : "without"}`}>
      <h3>{AGAIN.lanes[cache ? 0 : 1]}</h3>
      <p class="soft">{fillText(AGAIN.words, { ...values, time: time(Math.min(view.t, timeOf(lane))) })}</p>
      <p class="wid-reply-said" aria-hidden="true">
        {runningText(whole).map(({ text, blank }, i) => [
          i > 0 && blank && " ",
          <Word text={text} class={`wid-word ${i < done ? "" : "ahead"}`} />,
        ])}
      </p>
      <div class="wid-blocks" aria-hidden="true">
        {blocksAt(view, lane, cache).map(({ left, width, height, now }) => (
          <i class={now ? "now" : ""} style={`left:${left}%;--wide:${width}%;height:${height}%`} />
        ))}
      </div>
    </div>
  );
}

function valuesOf({ lane, plain, guess, prompt }) {
  const [run, all, last] = [tokensRun(lane), tokensRun(plain), plain.passes.at(-1)];
  return {
    ...{ run, all, words: plain.passes.length, prompt: prompt.length, times: Math.round(all / run) },
    said: AGAIN.guesses.find(([, times]) => times === guess)?.[0],
    should: tokensWithout(prompt.length, lane.passes.length),
    ...{ ms: time(timeOf(lane)), msPlain: time(timeOf(plain)) },
    ...{ second: plain.passes[1]?.tokensRun, lastRun: last?.tokensRun },
    ...{ secondTime: time(plain.passes[1]?.ms ?? null), lastTime: time(last?.ms ?? null) },
  };
}

function Said({ view }) {
  const { lane, plain } = view;
  const values = valuesOf(view);
  const whole = plain.passes.length === lane.passes.length;
  const same = plain.passes.every((pass, i) => pass.said.token === lane.passes[i].said.token);
  const stage = whole ? (same ? "done" : "apart") : "stopped";
  return (
    <p class="wid-sentence" aria-live="polite">
      {fillText(AGAIN.say[stage], values)} {stage === "done" && values.said && fillText(AGAIN.said, values)}
    </p>
  );
}

function More({ view }) {
  const { plain, noEos } = view;
  const [button, why] = AGAIN.long;
  const values = { words: MOST.long, token: { token: EOS } };
  return (
    <>
      {plain.passes.length > 2 && <p>{fillText(AGAIN.last, valuesOf(view))}</p>}
      {!noEos && (
        <div class="wid-guesses">
          <Button onClick={() => view.long()}>{fillText(button, values)}</Button>
        </div>
      )}
      {!noEos && (
        <p class="soft">
          <Parts parts={fill(why, values)} />
        </p>
      )}
      <p class="soft">{card(view)}</p>
    </>
  );
}

/** What the page's clock does not show: on a card the prompt costs little more than a word. */
function card({ data, prompt, lane }) {
  const { compared, card } = data;
  const model = compared.at(-1);
  const least = (tokens, before) =>
    formatUnit(secondsOf(workOfPass(model, { tokens, before }), card).least, "s");
  return fillText(AGAIN.card, {
    prompt: prompt.length,
    model: model.name,
    card: card.name,
    pause: least(prompt.length, 0),
    word: least(1, prompt.length),
    here: time(lane.passes[0].ms),
  });
}
