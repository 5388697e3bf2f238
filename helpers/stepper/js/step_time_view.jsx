// Draws StepTime: a case of the reader's own and what its step takes.
import VIEW from "../view.json" with { type: "json" };
import { caseAtFirst, caseFrom, isMore, toldCase } from "./case.js";
import { CaseControls, StepPanel } from "./step_panel.jsx";
import { passOf } from "./step_time.js";
import { View } from "./view.jsx";
/** @import { Case, Machines } from "./case.js" */

const PREFIX = "case-"; // of its names in an address, beside those of a stepper's strip

export class StepTimeView extends View {
  /** @param {Element} el @param {Machines} machines @param {any} options */
  constructor(el, machines, options) {
    super(el, options, "step_time", VIEW.step_time.label);
    this.machines = machines;
    this.first = caseAtFirst(machines, options.case);
    this.chosen = this.first;
    this.open = isMore(this.first); // whether the fold is open at first
    this.start();
  }

  state() {
    const [told, first] = [this.chosen, this.first].map((one) => toldCase(one, this.machines, PREFIX));
    return Object.fromEntries(
      Object.entries(told).map(([name, value]) => [name, value === first[name] ? null : value]),
    );
  }

  /** @param {Map<string, string>} values */
  goTo(values) {
    /** @type {string[]} */
    const wrong = [];
    this.chosen = caseFrom(values, this.machines, this.first, wrong, PREFIX);
    this.open = isMore(this.chosen);
    return wrong;
  }

  /** @param {Partial<Case>} wanted */
  choose(wanted) {
    this.chosen = { ...this.chosen, ...wanted };
    this.keepAddress();
    this.draw();
  }

  template() {
    const { chosen, machines, open } = this;
    return (
      <>
        <CaseControls {...{ chosen, machines, open }} choose={(wanted) => this.choose(wanted)} />
        <StepPanel {...{ chosen, pass: passOf(chosen) }} />
      </>
    );
  }
}
