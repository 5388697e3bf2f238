// What did it look at? The weights that a head gave when a word ran, as underlines of the text.
import VIEW from "../../view.json" with { type: "json" };
import { fill, fillText } from "../format.js";
import { Parts, Picker } from "../parts.jsx";
import { readTrace, weightsOf } from "../trace.js";

const { look: LOOK } = VIEW.live;
const MOST = 3; // words that the sentence names

/** Write the same words again, and keep the weights of the heads that find something. */
export async function findLooks(view) {
  const { prompt, lane, data } = view;
  const tokens = prompt.map(({ id }) => id);
  const record = data.heads.map(({ layer, head }) => [layer, head]);
  const answer = await view.talk.ask(view.asked(tokens, true, { steps: lane.passes.length, record }));
  if (answer.op === "failed") return { failed: answer.say };
  const texts = [...prompt, ...view.out].map(({ text }) => text);
  const by = texts.lastIndexOf(data.until);
  const last = texts.length - 2; // the last word has come out, but not run
  return { record: readTrace(answer.trace), head: 0, row: by > 0 && by <= last ? by : last };
}

const lookOf = (view, { record, head, row }) =>
  weightsOf(record, row, view.data.heads[head].layer, view.data.heads[head].head);

/** What a word of the text is: a button that asks what it looked at, underlined by what it gets of it. */
export function lookMark(view, found) {
  const weights = lookOf(view, found);
  const last = view.prompt.length + view.out.length - 1;
  return (i) =>
    i < last && {
      "aria-pressed": i === found.row,
      style: `--shade:${Math.round(100 * (weights?.[i] ?? 0))}%`,
      onClick: () => {
        found.row = i;
        view.draw();
      },
    };
}

export function Look({ view, found }) {
  const texts = [...view.prompt, ...view.out].map(({ text }) => text);
  const weights = [...(lookOf(view, found) ?? [])];
  const most = weights.map((share, i) => ({ share, i })).sort((a, b) => b.share - a.share);
  const values = {
    token: { token: texts[found.row] },
    layer: view.data.heads[found.head].layer + 1,
    head: view.data.heads[found.head].head + 1,
  };
  const named = most.slice(0, MOST).filter(({ share }) => share >= VIEW.picked);
  const parts = named.flatMap(({ share, i }, n) => [
    n ? ", " : "",
    ...fill(LOOK.share, { token: { token: texts[i] }, place: i + 1, share: `${Math.round(100 * share)}%` }),
  ]);
  return (
    <div class="wid-act">
      <p>{LOOK.ask}</p>
      <Picker
        label={LOOK.heads}
        names={view.data.heads.map(({ finds }) => finds)}
        chosen={found.head}
        choose={(head) => {
          found.head = head;
          view.draw();
        }}
      />
      <p class="wid-sentence" aria-live="polite">
        <Parts parts={[...fill(LOOK.say, values), ...parts, "."]} />
      </p>
      <p class="soft">
        {fillText(LOOK.note, { layers: view.model.config.nLayers, heads: view.model.config.nHeads })}
      </p>
    </div>
  );
}
