// Puts a view into an element: what a notebook's widget and a saved page call.
import { make } from "./dom.js";
import { RaceView } from "./race.js";
import { StepperView } from "./stepper.js";
import { TraceError } from "./trace.js";
import { WhatIfView } from "./what_if.js";

const VIEWS = { race: RaceView, stepper: StepperView, what_if: WhatIfView };

/** Returns the function that takes the view away again; what cannot be played says so in its place. */
export function mountView(el, data, options) {
  try {
    const view = new VIEWS[options.view](el, data, options);
    return () => view.destroy();
  } catch (error) {
    if (!(error instanceof TraceError)) throw error;
    const said = make("p", "", error.message);
    el.append(said);
    return () => said.remove();
  }
}
