// The cost strip: a folded line that always says what bounds the pass, and under it the panel of its step.
import VIEW from "../view.json" with { type: "json" };
import { fillText } from "./format.js";
import { QUIET } from "./parts.jsx";
import { CaseControls, StepLine, StepPanel } from "./step_panel.jsx";
import { factsOf } from "./step_time.js";
import { asIf, insightOf, ranIn } from "./strip.js";
/** @import { Case, Machines } from "./case.js" */
/** @import { Choose } from "./step_panel.jsx" */
/** @import { Frame } from "./types" */
/** @import { Ran } from "./strip.js" */

const SAY = VIEW.strip;

/** Softmax(Q Kᵀ ÷ √d + mask) V, and under each letter its sizes in this pass, for one head.
 * @param {{ frame: Frame, ran: Ran }} props */
function Formula({ frame, ran }) {
  const { k_dim: d, v_dim, scale } = frame.record.model;
  const [T, S] = [ran.tokens, ran.tokens + ran.before];
  /** @param {string} letter @param {string} size */
  const part = (letter, size) => (
    <span class="wid-term">
      <b>{letter}</b>
      <small>{size}</small>
    </span>
  );
  return (
    <p class="wid-formula" aria-label={fillText(SAY.formula, { T, S, d, v: v_dim })}>
      {"softmax( "}
      {part("Q", `${T} × ${d}`)}
      {" · "}
      {part("Kᵀ", `${d} × ${S}`)}
      {scale !== 1 && " ÷ √d"}
      {" + "}
      {part("mask", `${T} × ${S}`)}
      {" ) · "}
      {part("V", `${S} × ${v_dim}`)}
      {" = "}
      {part(SAY.contexts, `${T} × ${v_dim}`)}
    </p>
  );
}

/** The strip of one pass, in the case that the reader has chosen.
 * @param {{ frame: Frame, machines: Machines, chosen: Case, choose: Choose }} props */
export function CostStrip({ frame, machines, chosen, choose }) {
  const ran = ranIn(frame.event, frame.run.keeps);
  const pass = asIf(ran, chosen.tokens);
  return (
    <details class="wid-cost">
      <summary {...QUIET}>
        <b>{SAY.title}</b> <StepLine {...{ chosen, pass }} />
      </summary>
      <CaseControls
        {...{ chosen, machines, choose, recorded: true }}
        more={["cards", "collective", "bandwidthReached", "computeReached"]}
      />
      <StepPanel {...{ chosen, pass }}>
        <p>{insightOf(ran, factsOf(chosen, pass))}</p>
      </StepPanel>
      <Formula frame={frame} ran={ran} />
    </details>
  );
}
