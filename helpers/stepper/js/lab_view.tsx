// The lab's numbers beside the board: what has added up so far, the formula and the shapes of the chosen model.
import VIEW from "../view.json" with { type: "json" };
import { fillText } from "./format.ts";
import { accumulated, insightOf, passAt, shapesAt, widestOf } from "./lab.ts";
import { Button } from "./parts.tsx";
import { StepLine, StepPanel } from "./step_panel.tsx";
import { factsOf } from "./step_time.ts";
import type { Case } from "./case.ts";
import type { Model } from "./cost.ts";
import type { Frame } from "./types";

const SAY = VIEW.lab;
/** `length`: of the prompt, null as recorded. */
type Props = { frame: Frame; model: Model; length: number | null };

const written = (count: number) => count.toLocaleString("en");
const shape = (lengths: number[]) => lengths.map(written).join(" × ");

/** What bounds this pass, and what there is to learn from it. */
export function Bound({ frame: { event, run, record }, chosen: given }: { frame: Frame; chosen: Case }) {
  const chosen = event.counted ? given : { ...given, kvBits: 0 }; // training keeps no entries
  const pass = passAt(event, record.prompt, chosen.tokens);
  const ran = { phase: event.phase, keeps: run.keeps, prompt: chosen.tokens ?? record.prompt };
  return (
    <StepPanel {...{ chosen, pass, room: false }}>
      <p class="wid-insight">{insightOf(ran, factsOf(chosen, pass))}</p>
    </StepPanel>
  );
}

/** The same in one line, for the story; `open` leads to the lab. */
export function BoundLine({
  frame: { event, record },
  chosen,
  open,
}: {
  frame: Frame;
  chosen: Case;
  open: () => void;
}) {
  return (
    <p class="wid-cost">
      <b>{SAY.title}</b> <StepLine {...{ chosen, pass: passAt(event, record.prompt, chosen.tokens) }} />
      <Button onClick={open}>{fillText(SAY.open, { tokens: SAY.tokens })}</Button>
    </p>
  );
}

/** At which length all is counted, and whose the grid is. */
export function Length({ frame, length }: { frame: Frame; length: number | null }) {
  const values = { tokens: length, prompt: frame.record.prompt };
  return <p class="soft">{fillText(SAY.length[length === null ? "recorded" : "as if"], values)}</p>;
}

/** What this pass adds and what has added up. */
export function Accumulators({ frame, model, length }: Props) {
  const { event, run, record } = frame;
  const { now, soFar } = accumulated(run, event, record.prompt, length, widestOf(model));
  const { counts } = SAY;
  const { window } = widestOf(model);
  const scope = SAY.of[window ? "window" : model.kinds.length > 1 ? "full" : "each"];
  const again = run.keeps ? counts.spared : counts.again;
  const lines: [string, keyof typeof now][] = [
    [counts.tokens, "tokens"],
    [counts.pairs, "pairs"],
    [counts.written, "written"],
    [counts.read, "read"],
    [again[0], "againTokens"],
    [again[1], "againPairs"],
  ];
  return (
    <section class="wid-counts">
      <table>
        <caption>{fillText(SAY.of.say + scope, { model: model.name, window })}</caption>
        <thead>
          <tr>
            <td />
            <th scope="col">{event.counted ? SAY.now : SAY.training}</th>
            <th scope="col">{SAY["so far"]}</th>
          </tr>
        </thead>
        <tbody>
          {lines.map(([words, name]) => (
            <tr data-count={name}>
              <th scope="row">{words}</th>
              <td>{written(now[name])}</td>
              <td>{written(soFar[name])}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Softmax(Q Kᵀ ÷ √d + mask) V, and under each letter its sizes in this pass, for one head. */
export function Formula({ frame, model, length }: Props) {
  const { T, S, k, v, latent } = shapesAt(passAt(frame.event, frame.record.prompt, length), model).formula;
  /** A letter and its sizes, and what stands before and behind it in the same line. */
  const part = (before: string, letter: string, lengths: number[], behind = "") => (
    <span class="wid-together">
      {before}
      <span class="wid-term">
        <b>{letter}</b>
        <small>{shape(lengths)}</small>
      </span>
      {behind}
    </span>
  );
  return (
    <p class="wid-formula" role="img" aria-label={fillText(SAY.formula, { T, S, d: k, v })}>
      {part("softmax( ", "Q", [T, k])}
      {part("", "Kᵀ", [k, S], latent ? " · scale" : " ÷ √d")}
      {part("+ ", "mask", [T, S], " )")}
      {part("", "V", [S, v])}
      {part("= ", SAY.contexts, [T, v])}
    </p>
  );
}

/** The shape that each operation of the pass leaves. */
export function Shapes({ frame, model, length }: Props) {
  const { operations } = shapesAt(passAt(frame.event, frame.record.prompt, length), model);
  const names = SAY.operations as Record<string, string>;
  return (
    <section class="wid-shapes">
      <table>
        <caption>{fillText(SAY.shapes, { model: model.name })}</caption>
        <tbody>
          {operations.map(([name, lengths]) => (
            <tr data-shape={name}>
              <th scope="row">{names[name]}</th>
              <td>{shape(lengths)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
