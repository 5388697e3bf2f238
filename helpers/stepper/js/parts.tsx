// Templates that several views share. A token's text enters as text only, which is what Preact makes of a string.
import { candidatesOf } from "./frame.ts";
import { clippedText, formatPercent, visibleText } from "./format.ts";
import type { Candidate as One, Out, Parts as Said } from "./types";
import type { ButtonHTMLAttributes } from "preact";

/**
 * Keeps JupyterLab's shortcuts away: D D would delete the cell. It asks the element that has the focus before
 * those around it, so that one mark on the whole view is not enough.
 */
export const QUIET = { "data-lm-suppress-shortcuts": "true" };

export function Button(props: ButtonHTMLAttributes<HTMLButtonElement>) {
  return <button type="button" {...QUIET} {...props} />;
}

export function Slider(props: {
  min: number;
  max: number;
  value: number;
  step?: string;
  "aria-label"?: string;
  "aria-valuetext"?: string;
  onInput: (event: { currentTarget: HTMLInputElement }) => void;
}) {
  return <input type="range" {...QUIET} {...props} />;
}

const SEGMENTS = 9; // more than this are in a list

/** One of several is chosen: buttons for a few, a list for many; `allowed` says which can be, now; up
 * to `most` names are buttons. */
export function Picker({
  label,
  names,
  chosen,
  choose,
  allowed = () => true,
  most = SEGMENTS,
}: {
  label: string;
  names: string[];
  chosen: number;
  choose: (i: number) => void;
  allowed?: (i: number) => boolean;
  most?: number;
}) {
  if (names.length > most)
    return (
      <select aria-label={label} {...QUIET} onChange={(e) => choose(e.currentTarget.selectedIndex)}>
        {names.map((name, i) => (
          <option selected={i === chosen} disabled={!allowed(i)}>
            {name}
          </option>
        ))}
      </select>
    );
  return (
    <span class="wid-segments" role="group" aria-label={label}>
      {names.map((name, i) => (
        <Button aria-pressed={i === chosen} disabled={!allowed(i)} onClick={() => choose(i)}>
          {name}
        </Button>
      ))}
    </span>
  );
}

/** A picker with its name before it. */
export function Switch(props: Parameters<typeof Picker>[0]) {
  return (
    <span class="wid-switch">
      {`${props.label} `}
      <Picker {...props} />
    </span>
  );
}

/** A token's word in its own direction, cut where it is long; then the whole of it is its title. */
export function Word({ text, most = 24, ...props }: { text: string; most?: number; class?: string }) {
  const [shown, whole] = [clippedText(text, most), visibleText(text)];
  return (
    <bdi class="wid-word" title={shown === whole ? undefined : whole} {...props}>
      {shown}
    </bdi>
  );
}

export function Parts({ parts }: { parts: Said }) {
  return parts.map((part) =>
    typeof part === "string" ? part : <Word text={part.token} class="wid-word strong" />,
  );
}

/** A sentence that is read out when it changes, as high as the longest it may become. */
export function Sentence({ parts, longest }: { parts: Said; longest: Said[] }) {
  return (
    <div class="wid-say">
      <p class="wid-sentence" aria-live="polite" aria-atomic="true">
        <Parts parts={parts} />
      </p>
      {longest.map((one) => (
        <p class="wid-sizer" aria-hidden="true">
          <Parts parts={one} />
        </p>
      ))}
    </div>
  );
}

export function Candidate({ word, p, chosen }: Pick<One, "word" | "p" | "chosen">) {
  return (
    <div class={`wid-candidate ${chosen ? "chosen" : ""}`} data-chosen={chosen}>
      <bdi class="wid-word" title={visibleText(word)}>
        {visibleText(word)}
      </bdi>
      <span class="wid-bar">
        <i style={`width:${Math.max(1, 100 * p)}%`} />
      </span>
      <span class="wid-percent">{formatPercent(p)}</span>
    </div>
  );
}

export function Candidates({ out }: { out: Out }) {
  return candidatesOf(out).map((one) => <Candidate {...one} />);
}

/** Marks and what they mean: of each the class, what is written in it, and words. */
export function Legend({ items, label }: { items: string[][]; label?: string }) {
  return (
    <ul class="wid-legend" aria-label={label}>
      {items.map(([mark, text, words]) => (
        <li>
          {mark && <span class={`${mark} wid-key`}>{text}</span>}
          {words}
        </li>
      ))}
    </ul>
  );
}
