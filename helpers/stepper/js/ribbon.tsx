// The text so far, as text: each word's underline is as dark as the weight that the chosen line gives it.
import VIEW from "../view.json" with { type: "json" };
import { runningText, visibleText } from "./format.ts";
import { hasRun, shades, tokenState } from "./frame.ts";
import { Button } from "./parts.tsx";
import type { Frame } from "./types";

/**
 * All words at once, those to come unseen, so that the height is the same at every pass. `onRow` is called with the
 * token of a chosen word, `onPoint` with that of a word pointed at, or null; `about` is the token that is lit.
 */
export function Ribbon({
  frame,
  about,
  onRow,
  onPoint,
}: {
  frame: Frame;
  about?: number | null;
  onRow: (token: number) => void;
  onPoint: (token: number | null) => void;
}) {
  const shade = shades(frame);
  const at = (event: any) => {
    const token = event.target.closest("[data-token]")?.dataset.token;
    if (token !== undefined) onPoint(Number(token));
  };
  const out = () => onPoint(null);
  const heard = { onPointerOver: at, onFocusIn: at, onPointerLeave: out, onFocusOut: out };
  return (
    <div class="wid-ribbon" role="group" aria-label={VIEW.labels.ribbon} {...heard}>
      {runningText(frame.record.tokens).map(({ text, blank }, index) => {
        const { state, origin } = tokenState(frame.record, frame.run, frame.event, index);
        const chosen = index === frame.row ? "chosen" : "";
        const lit = index === about ? "lit" : "";
        return [
          index > 0 && blank && " ",
          <Button
            data-token={index}
            class={`wid-said ${origin} ${state} ${chosen} ${lit} ${text.length < 2 ? "small" : ""}`}
            style={`--shade:${Math.round(100 * (shade.get(index) ?? 0))}%`}
            tabIndex={chosen ? 0 : -1}
            disabled={!hasRun(frame.run, frame.event, index)}
            onClick={() => onRow(index)}
          >
            <bdi class="wid-word">{visibleText(text || frame.record.tokens[index].text)}</bdi>
          </Button>,
        ];
      })}
    </div>
  );
}
