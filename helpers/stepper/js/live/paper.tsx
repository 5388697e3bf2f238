// The text: first a box to type in, then its words, and behind them those of the model as they come.
import VIEW from "../../view.json" with { type: "json" };
import { runningText, visibleText } from "../format.ts";
import { Button, QUIET, Word } from "../parts.tsx";
import { EOS } from "./writing.ts";
import type { Diary, Marks, Mark } from "./parts";

const LIVE = VIEW.live;

/** `mark` tells of a word, by its index, what an act makes of it: properties of a button, nothing, or null to leave
 * it out. */
export function Paper({ view, mark }: { view: Diary; mark?: Marks | null | false }) {
  const { prompt, out, playing, text } = view;
  if (!prompt.length)
    return (
      <textarea
        {...QUIET}
        class="wid-paper"
        rows={3}
        aria-label={LIVE.box}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        enterkeyhint="go"
        dir="auto"
        maxLength={LIVE.most.characters}
        value={text}
        onInput={(event) => view.typed(event.currentTarget.value)}
      />
    );
  const all = [...prompt, ...out];
  const markOf = (i: number) => (mark ? mark(i) : undefined);
  const tokens = all.filter((_, i) => markOf(i) !== null);
  const pausing = playing && !out.length;
  return (
    <div class={`wid-paper ${pausing ? "pausing" : ""}`}>
      <p>
        {runningText(tokens).map(({ text, blank }, i) => [
          i > 0 && blank && " ",
          <Token text={text} origin={i < prompt.length ? "prompt" : "said"} mark={markOf(i)} />,
        ])}
        {playing && !pausing && tokens.length === all.length && <span class="wid-caret" />}
      </p>
      <p class="wid-unseen" aria-live="polite">
        {out.map(({ text }) => (
          <span>{` ${visibleText(text)}`}</span>
        ))}
      </p>
    </div>
  );
}

function Token({ text, origin, mark }: { text: string; origin: string; mark: Mark }) {
  const kind = `wid-token-${origin} ${text === EOS ? "soft" : ""}`;
  if (!mark) return <Word text={text} class={`wid-word ${kind}`} />;
  const { instead = text, class: more = "", ...asked } = mark;
  return (
    <Button {...asked} class={`wid-tap ${kind} ${more}`}>
      <Word text={instead} />
    </Button>
  );
}
