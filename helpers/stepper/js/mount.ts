// Puts a view into an element: what a notebook's widget and a saved page call.
export { startLive } from "./live/start.ts";
import { LiveView } from "./live/live_view.tsx";
import { PoolView } from "./pool_view.tsx";
import { RaceView } from "./race_view.tsx";
import { StepTimeView } from "./step_time_view.tsx";
import { StepperView } from "./stepper.tsx";
import { WhatIfView } from "./what_if_view.tsx";

const VIEWS: Record<string, any> = {
  live: LiveView,
  pool: PoolView,
  race: RaceView,
  step_time: StepTimeView,
  stepper: StepperView,
  what_if: WhatIfView,
};

/**
 * Returns the function that takes the view away again, and those that tell the address of what it shows, say what
 * its picture shows, and go there. `file` gets what a view runs, such as a model's weights, where it runs something.
 */
export function mountView(
  el: Element,
  data: any,
  options: { view: string },
  file?: () => Promise<ArrayBuffer>,
) {
  const view = new VIEWS[options.view](el, data, options, file);
  return Object.assign(() => view.destroy(), {
    address: () => view.address(),
    stills: () => view.stills(),
    goTo: (values: Record<string, string | number>) =>
      view.goTo(new Map(Object.entries(values).map(([name, x]) => [name, String(x)]))),
  });
}
