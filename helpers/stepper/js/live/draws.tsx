// Ten endings: the same text and the same probabilities, with other random numbers.
import VIEW from "../../view.json" with { type: "json" };
import { fillText, runningText } from "../format.ts";
import { EOS } from "./writing.ts";
import type { Diary } from "./parts";

const { draws: DRAWS } = VIEW.live;

/** Let the model go on ten times, the first time as it did. */
export async function findDraws(view: Diary) {
  const { prompt, settings, talk } = view;
  const tokens = prompt.map(({ id }) => id);
  const endings: { text: string }[][] = [];
  for (let n = 0; n < DRAWS.many; n++) {
    const words: { text: string }[] = [];
    const drawn = { steps: DRAWS.steps, settings: { ...settings, seed: settings.seed + n } };
    const answer = await talk?.ask(view.asked(tokens, true, drawn), ({ said }) => words.push(said));
    if (answer.op === "failed") return { failed: answer.say };
    endings.push(words);
  }
  return { endings };
}

export function Draws({ found: { endings } }: { found: { endings: { text: string }[][] } }) {
  const firsts = new Set(endings.map(([{ text }]) => text)).size;
  return (
    <div class="wid-act">
      <p class="wid-sentence" aria-live="polite">
        {fillText(DRAWS.say, { many: endings.length, firsts })}
      </p>
      <ol>
        {endings.map((words) => (
          <li class="wid-reply-said">
            {runningText(words).map(({ text, blank }, i) => (i && blank ? " " : "") + text)}
            {words.at(-1)?.text !== EOS && " …"}
          </li>
        ))}
      </ol>
    </div>
  );
}
