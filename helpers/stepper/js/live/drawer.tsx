// The cache as a drawer: a column for each token whose KV entry it holds, and how long what stands there took.
import VIEW from "../../view.json" with { type: "json" };
import { bytesOf } from "../cost.ts";
import { fill, fillText, formatUnit } from "../format.ts";
import { Parts } from "../parts.tsx";
import { EOS, doneAt, entryBytes, tokensRun, wordTime } from "./writing.ts";
import type { Writer } from "./parts";

const LIVE = VIEW.live;

export const time = (ms: number | null) => (ms === null ? "–" : formatUnit(ms / 1000, "s"));

/** How much slower than it was something is seen. */
export const slowness = ({ factor }: { factor: number }, said: string[]) =>
  fillText(said[factor > 1 ? 0 : 1], { factor });

/** A number and under it what it is. */
function Counter({ value, name }: { value: string; name: string }) {
  return (
    <span class="wid-counter">
      <b>{value}</b>
      {name}
    </span>
  );
}

/** Columns of K over V; those that are coming run now. */
function Columns({ many, state }: { many: number; state: "coming" | "kept" }) {
  return (
    <div class={`wid-columns ${state}`} aria-hidden="true">
      {Array.from({ length: many }, (_, i) => (
        <i key={i} />
      ))}
    </div>
  );
}

export function Drawer({ view }: { view: Writer }) {
  const { prompt, lane, t, playing } = view;
  const done = doneAt(lane, t);
  const shown = { ...lane, passes: lane.passes.slice(0, done) };
  const cached = lane.passes[done - 1]?.cached ?? 0;
  const pausing = playing && !done;
  const pause = pausing ? t : lane.passes[0]?.ms;
  return (
    <div class="wid-run">
      <div class="wid-counters">
        <Counter value={time(pause ?? null)} name={fillText(LIVE.pause, { prompt: prompt.length })} />
        <Counter value={time(wordTime(shown))} name={LIVE.typical} />
        <Counter value={tokensRun(lane, done).toLocaleString("en")} name={LIVE.tokens} />
      </div>
      <p class="wid-drawer-name">
        <b>{LIVE.cache}</b> {fillText(pausing ? LIVE.coming : LIVE.kept, { cached })}
        {!playing && <Parts parts={sum(view, cached)} />}
      </p>
      <Columns many={pausing ? prompt.length : cached} state={pausing ? "coming" : "kept"} />
      <p class="soft" hidden={view.still.matches || !lane.passes.length}>
        {slowness(view, LIVE.slower)}
      </p>
    </div>
  );
}

/** Which tokens' entries they are: of all tokens but the last, which has come out and not run. */
function sum({ prompt, out }: Writer, cached: number) {
  const values = { prompt: prompt.length, more: cached - prompt.length, out: out.length };
  const text = out.at(-1)?.text;
  const end = text === EOS ? fill(LIVE.eos, { token: { token: text } }) : [];
  return [...fill(LIVE.sum, values), ...end, "."];
}

/** How large the KV entries are, next to the text that they belong to and to those of published models. */
export function Sizes({ view: { data, lane, model } }: { view: Writer }) {
  const cached = lane.passes.at(-1)?.cached ?? 0;
  const real = data.compared.map((one) =>
    fillText(LIVE.would, { model: one.name, bytes: formatUnit(bytesOf(one, cached).user, "B") }),
  );
  const bytes = formatUnit(entryBytes(model.config, cached), "B");
  const values = { cached, layers: model.config.nLayers, bytes, real: real.join(", ") };
  return <p class="soft wid-sizes">{fillText(LIVE.size, values)}</p>;
}
