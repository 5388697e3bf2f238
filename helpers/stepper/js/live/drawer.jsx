// The cache as a drawer: a column for each token whose rows it holds, and how long what stands there took.
import VIEW from "../../view.json" with { type: "json" };
import { bytesOf } from "../cost.js";
import { fill, fillText, formatUnit } from "../format.js";
import { Parts } from "../parts.jsx";
import { EOS, doneAt, rowBytes, tokensRun, wordTime } from "./writing.js";

const LIVE = VIEW.live;

/** @import { Writer } from "./parts" */

/** @param {number | null} ms */
export const time = (ms) => (ms === null ? "–" : formatUnit(ms / 1000, "s"));

/** How much slower than it was something is seen. @param {{ factor: number }} view @param {string[]} said */
export const slowness = ({ factor }, said) => fillText(said[factor > 1 ? 0 : 1], { factor });

/** A number and under it what it is. @param {{ value: string, name: string }} props */
function Counter({ value, name }) {
  return (
    <span class="wid-counter">
      <b>{value}</b>
      {name}
    </span>
  );
}

/** Columns of K over V. @param {{ many: number, state: "coming" | "kept" }} props coming: they run now */
function Columns({ many, state }) {
  return (
    <div class={`wid-columns ${state}`} aria-hidden="true">
      {Array.from({ length: many }, (_, i) => (
        <i key={i} />
      ))}
    </div>
  );
}

/** @param {{ view: Writer }} props */
export function Drawer({ view }) {
  const { prompt, lane, t, playing } = view;
  const done = doneAt(lane, t);
  const shown = { ...lane, passes: lane.passes.slice(0, done) };
  const rows = lane.passes[done - 1]?.rows ?? 0;
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
        <b>{LIVE.cache}</b> {fillText(pausing ? LIVE.coming : LIVE.kept, { rows })}
        {!playing && <Parts parts={sum(view, rows)} />}
      </p>
      <Columns many={pausing ? prompt.length : rows} state={pausing ? "coming" : "kept"} />
      <p class="soft" hidden={view.still.matches || !lane.passes.length}>
        {slowness(view, LIVE.slower)}
      </p>
    </div>
  );
}

/** Whose rows they are: of all tokens but the last, which has come out and not run.
 * @param {Writer} view @param {number} rows */
function sum({ prompt, out }, rows) {
  const values = { prompt: prompt.length, more: rows - prompt.length, out: out.length };
  const text = out.at(-1)?.text;
  const end = text === EOS ? fill(LIVE.eos, { token: { token: text } }) : [];
  return [...fill(LIVE.sum, values), ...end, "."];
}

/** How large the rows are, beside the text that they belong to and beside those of published models.
 * @param {{ view: Writer }} props */
export function Sizes({ view: { data, lane, model } }) {
  const rows = lane.passes.at(-1)?.rows ?? 0;
  const real = data.compared.map((one) =>
    fillText(LIVE.would, { model: one.name, bytes: formatUnit(bytesOf(one, rows).user, "B") }),
  );
  const bytes = formatUnit(rowBytes(model.config, rows), "B");
  const values = { rows, layers: model.config.nLayers, bytes, real: real.join(", ") };
  return <p class="soft wid-sizes">{fillText(LIVE.size, values)}</p>;
}
