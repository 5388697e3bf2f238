// Puts a view into an element: what a notebook's widget and a saved page call.
export { startLive } from "./live/start.js";
import { LiveView } from "./live/live_view.jsx";
import { PoolView } from "./pool_view.jsx";
import { RaceView } from "./race_view.jsx";
import { StepTimeView } from "./step_time_view.jsx";
import { StepperView } from "./stepper.jsx";
import { WhatIfView } from "./what_if_view.jsx";

/** @type {Record<string, any>} */
const VIEWS = {
  live: LiveView,
  pool: PoolView,
  race: RaceView,
  step_time: StepTimeView,
  stepper: StepperView,
  what_if: WhatIfView,
};

/**
 * Returns the function that takes the view away again, and one that tells the address of what it shows. `file` gets what a view runs, such as a model's weights, where it
 * runs something.
 * @param {Element} el @param {any} data @param {{ view: string }} options @param {(() => Promise<ArrayBuffer>)} [file]
 */
export function mountView(el, data, options, file) {
  const view = new VIEWS[options.view](el, data, options, file);
  return Object.assign(() => view.destroy(), { address: () => view.address() });
}
