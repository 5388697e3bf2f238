// Draws StepTime: a case of the reader's own and what its step takes.
import VIEW from "../view.json" with { type: "json" };
import { caseAtFirst, caseFrom, isMore, toldCase, type Case, type Machines } from "./case.ts";
import { CaseControls, StepPanel } from "./step_panel.tsx";
import { passOf } from "./step_time.ts";
import { View } from "./view.tsx";

const PREFIX = "case-"; // of its names in an address, beside those of a stepper's strip

export class StepTimeView extends View {
  declare machines: Machines;
  declare first: Case;
  declare chosen: Case;
  declare open: boolean;

  constructor(el: Element, machines: Machines, options: any) {
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

  goTo(values: Map<string, string>) {
    const wrong: string[] = [];
    this.chosen = caseFrom(values, this.machines, this.first, wrong, PREFIX);
    this.open = isMore(this.chosen);
    return wrong;
  }

  choose(wanted: Partial<Case>) {
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
