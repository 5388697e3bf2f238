// What did it look at? The weights that a head gave when a word ran, as lines under the text.
import VIEW from "../../view.json" with { type: "json" };
import { fill, fillText } from "../format.ts";
import { Parts } from "../parts.tsx";
import { readTrace, weightsOf } from "../trace.ts";
import { foundBy } from "./writing.ts";
import type { Diary, Marks } from "./parts";

const { look: LOOK } = VIEW.live;

/** Of each token that ran what it looked at, and which of them is asked about. */
type Looks = {
  texts: string[];
  rows: (ReturnType<typeof foundBy> & { weights: ArrayLike<number> })[];
  row: number;
};

/** Write the same words again, and keep what the head looks at that finds names and cities. */
export async function findLooks(view: Diary): Promise<Looks | { failed: string }> {
  const { prompt, lane, data } = view;
  const { layer, head } = data.finder;
  const tokens = prompt.map(({ id }) => id);
  const asked = view.asked(tokens, true, { steps: lane.passes.length, record: [[layer, head]] });
  const answer = await view.talk?.ask(asked);
  if (answer.op === "failed") return { failed: answer.say };
  const record = readTrace(answer.trace);
  const texts = [...prompt, ...view.out].map(({ text }) => text).slice(0, -1); // the last is out, but has not run
  const wanted = new Set(data.kinds.slice(0, 2).flat());
  const rows = texts.map((_, row) => {
    const weights = weightsOf(record, row, layer, head) ?? [];
    return { weights, ...foundBy(weights, texts, wanted) };
  });
  const by = texts.lastIndexOf(data.until);
  return { texts, rows, row: by > 0 ? by : texts.length - 1 };
}

/** What a word of the text is: a button that asks what it looked at, with a line as thick as the weight that it gets. */
export function lookMark(view: Diary, found: Looks): Marks {
  const { weights } = found.rows[found.row];
  return (i) =>
    i < found.rows.length && {
      class: found.rows[i].found ? "other" : "",
      "aria-pressed": i === found.row,
      style: `--share:${(weights[i] ?? 0).toFixed(2)}`,
      onClick: () => {
        found.row = i;
        view.draw();
      },
    };
}

export function Look({ view, found: { texts, rows, row } }: { view: Diary; found: Looks }) {
  const { finder } = view.data;
  const { config } = view.model;
  const { most, share, found } = rows[row];
  const whose = { layer: finder.layer + 1, head: finder.head + 1 };
  const values = { ...whose, token: { token: texts[row] }, place: row + 1, most: { token: most } };
  return (
    <div class="wid-act">
      <p class="wid-sentence" aria-live="polite">
        <Parts
          parts={fill(LOOK[found ? "found" : "nothing"], { ...values, share: `${Math.round(100 * share)}%` })}
        />
      </p>
      <p>{LOOK.ask}</p>
      <p class="soft">{fillText(LOOK.note, { layers: config.nLayers, heads: config.nHeads })}</p>
    </div>
  );
}
