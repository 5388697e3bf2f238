// Whether the Worker is to stop what it does: asked in between, since messages come in only when it rests.

/** A request, and whether it is to stop.
 * @typedef {{ ask: Exclude<import("./protocol.js").Ask, { do: "stop" }>, stopped: boolean }} Job */

export class Stopped extends Error {}

/** Let messages in; raise Stopped where the job is to stop. @param {Job} job */
export async function lookUp(job) {
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
