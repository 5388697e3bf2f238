// Ten endings: the same text and the same probabilities, with other random numbers.
import VIEW from "../../view.json" with { type: "json" };
import { fillText, runningText } from "../format.js";
import { EOS } from "./writing.js";

const { draws: DRAWS } = VIEW.live;

/** @import { Diary } from "./parts" */

/** Let the model go on ten times, the first time as it did. @param {Diary} view */
export async function findDraws(view) {
  const { prompt, settings, talk } = view;
  const tokens = prompt.map(({ id }) => id);
  /** @type {{ text: string }[][]} */
  const endings = [];
  for (let n = 0; n < DRAWS.many; n++) {
    /** @type {{ text: string }[]} */
    const words = [];
    const drawn = { steps: DRAWS.steps, settings: { ...settings, seed: settings.seed + n } };
    const answer = await talk?.ask(view.asked(tokens, true, drawn), ({ said }) => words.push(said));
    if (answer.op === "failed") return { failed: answer.say };
    endings.push(words);
  }
  return { endings };
}

/** @param {{ found: { endings: { text: string }[][] } }} props */
export function Draws({ found: { endings } }) {
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
