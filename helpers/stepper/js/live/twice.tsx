// Send it twice: how much of the same text prefill runs while the KV entries of the first time are kept, and how much
// of it with a word changed.
import VIEW from "../../view.json" with { type: "json" };
import { fill, fillText } from "../format.ts";
import { Parts } from "../parts.tsx";
import { exchangeMark, firstExchange, type Exchange } from "./change.tsx";
import { time } from "./drawer.tsx";
import type { Diary, Marks } from "./parts";

const { twice: TWICE } = VIEW.live;

/** How many tokens a prefill ran, and its milliseconds. */
type Prefill = { tokensRun: number; ms: number };
/** `changed` is null where the text has no word to exchange. */
type Found = Exchange & { again: Prefill; changed: Prefill | null };

export async function findTwice(view: Diary) {
  return send(view, firstExchange(view, view.prompt));
}

/** Send the same text, and then the one with a word exchanged. */
async function send(view: Diary, { text, at, to }: Exchange) {
  const same = text.map(({ id }) => id);
  const other = at < 0 ? null : same.with(at, view.words?.ids.get(to) ?? 0);
  const passes: Prefill[] = [];
  for (const tokens of [same, ...(other ? [other] : [])]) {
    const asked = view.asked(tokens, true, { steps: 1, resume: true });
    const answer = await view.talk?.ask(asked, (pass) => passes.push(pass));
    if (answer.op === "failed") return { failed: answer.say };
  }
  return { text, at, to, again: passes[0], changed: passes[1] ?? null };
}

/** A word that can be exchanged is sent exchanged. */
export const twiceMark = (view: Diary, found: Found): Marks =>
  exchangeMark(view, found, (other) => view.find("twice", send(view, other)));

export function Twice({ view, found: { text, at, to, again, changed } }: { view: Diary; found: Found }) {
  const all = text.length;
  const kept = all - again.tokensRun;
  const exchanged = at < 0 ? {} : { token: { token: to }, from: { token: text[at].text } };
  return (
    <div class="wid-act">
      <p class="wid-sentence" aria-live="polite">
        {fillText(TWICE[kept ? "say" : "one"], { all, kept, run: again.tokensRun })}
      </p>
      {[view.lane.passes[0], again, changed].map(
        (pass, i) =>
          pass && (
            <div class="wid-runner">
              <h3>
                <Parts parts={fill(TWICE.names[i], exchanged)} />
              </h3>
              <p class="soft">{fillText(TWICE.run, { run: pass.tokensRun, all, time: time(pass.ms) })}</p>
              <p class="wid-entries" aria-hidden="true">
                {text.map((_, n) => (
                  <i class={n < all - pass.tokensRun ? "read" : "written"} />
                ))}
              </p>
            </div>
          ),
      )}
      <p class="soft wid-entries wid-entries-key" aria-hidden="true">
        <i class="read" /> {TWICE.legend[0]}
        <i class="written" /> {TWICE.legend[1]}
      </p>
      {changed && <p>{TWICE.changed}</p>}
      <p class="soft">{TWICE.note}</p>
    </div>
  );
}
