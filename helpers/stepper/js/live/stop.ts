// Whether the Worker is to stop what it does: asked in between, since messages come in only when it rests.
import type { Ask } from "./protocol";

/** A request, and whether it is to stop. */
export type Job = { ask: Exclude<Ask, { do: "stop" }>; stopped: boolean };

export class Stopped extends Error {}

/** Let messages in; raise Stopped where the job is to stop. */
export async function lookUp(job: Job) {
  await messages();
  if (job.stopped) throw new Stopped("stopped, as asked; the model stays: ask again");
}

/** A new channel each time: a timer would take 4 ms, a port that stays open keeps node awake. */
function messages() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => resolve(port1.close());
    port2.postMessage(null);
  });
}
