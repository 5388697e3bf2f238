// Puts a view into an element: what a notebook's widget and a saved page call.
import { RaceView } from "./race.js";
import { StepperView } from "./stepper.js";
import { WhatIfView } from "./what_if.js";

const VIEWS = { race: RaceView, stepper: StepperView, what_if: WhatIfView };

/** Returns the function that takes the view away again. */
export function mountView(el, data, options) {
  const view = new VIEWS[options.view](el, data, options);
  return () => view.destroy();
}
