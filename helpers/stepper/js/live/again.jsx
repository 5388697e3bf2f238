// Again, without the cache: a guess, the same words on the same clock, and how long each of them let wait.
import VIEW from "../../view.json" with { type: "json" };
import { secondsOf, workOfPass } from "../cost.js";
import { fillText } from "../format.js";
import { Button } from "../parts.jsx";
import { formatUnit } from "../strip.js";
import { Columns, Counter, time } from "./drawer.jsx";
import { doneAt, timeOf, tokensRun, tokensWithout } from "./writing.js";

const { again: AGAIN, most: MOST } = VIEW.live;

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
      <div class="wid-lanes">
        {view.lanes.map((one, i) => (
          <Lane view={view} lane={one} cache={i === 0} />
        ))}
      </div>
      <Waits view={view} />
      <p class="soft">{fillText(AGAIN.clock[view.factor > 1 ? 0 : 1], { factor: view.factor })}</p>
      {!playing && <Verdict view={view} />}
    </div>
  );
}

/** A lane in numbers, and the rows that it holds: kept, or made for a pass and dropped. */
function Lane({ view, lane, cache }) {
  const done = doneAt(lane, view.t);
  const [last, going] = [lane.passes[done - 1], lane.passes[done]];
  return (
    <>
      <h3>{AGAIN.lanes[cache ? 0 : 1]}</h3>
      <Counter value={`${done} of ${view.lane.passes.length}`} name={AGAIN.words} />
      <Counter value={time(Math.min(view.t, timeOf(lane)))} name={AGAIN.time} />
      <Counter value={tokensRun(lane, done).toLocaleString("en")} name={VIEW.live.tokens} />
      <Columns
        many={cache ? (last?.rows ?? 0) : view.playing ? (going?.tokensRun ?? 0) : 0}
        state={cache ? "kept" : "dropped"}
        pass={done}
      />
    </>
  );
}

/** How long each word let wait: for both lanes a column, on one scale. The first is the pause. */
function Waits({ view: { lanes, t } }) {
  const slowest = Math.max(...lanes.flatMap(({ passes }) => passes.map(({ ms }) => ms)));
  const done = lanes.map((lane) => doneAt(lane, t));
  const column = (i, n) => {
    const { ms, phase } = lanes[n].passes[i] ?? {};
    const kind = phase === "prefill" ? "prompt" : n ? "again" : "fresh";
    return <i class={kind} style={`height:${i < done[n] ? Math.max(2, (100 * ms) / slowest) : 0}%`} />;
  };
  return (
    <div class="wid-waits" aria-hidden="true">
      {lanes[0].passes.map((_, i) => (
        <span>
          {column(i, 1)}
          {column(i, 0)}
        </span>
      ))}
    </div>
  );
}

function Verdict({ view }) {
  const { lane, plain, guess, prompt, noEos } = view;
  const [run, all] = [tokensRun(lane), tokensRun(plain)];
  const whole = plain.passes.length === lane.passes.length;
  const same = plain.passes.every((pass, i) => pass.said.token === lane.passes[i].said.token);
  const said = AGAIN.guesses.find(([, times]) => times === guess)?.[0];
  const last = plain.passes.at(-1);
  const values = {
    ...{ run, all, said, words: plain.passes.length, prompt: prompt.length },
    times: Math.round(all / run),
    should: tokensWithout(prompt.length, lane.passes.length),
    ...{ ms: time(timeOf(lane)), msPlain: time(timeOf(plain)) },
    ...{ second: plain.passes[1]?.tokensRun, lastRun: last?.tokensRun },
    ...{ secondTime: time(plain.passes[1]?.ms ?? null), lastTime: time(last?.ms ?? null) },
  };
  const stage = whole ? (same ? "done" : "apart") : "stopped";
  return (
    <>
      <p class="wid-sentence" aria-live="polite">
        {fillText(AGAIN.say[stage], values)} {stage === "done" && said && fillText(AGAIN.said, values)}
      </p>
      {plain.passes.length > 2 && <p>{fillText(AGAIN.last, values)}</p>}
      {!noEos && (
        <div class="wid-buttons">
          <Button onClick={() => view.long()}>{fillText(AGAIN.long, { words: MOST.long })}</Button>
        </div>
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
