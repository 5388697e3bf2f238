// The page's side of the Worker. The bundle holds its script as text: a page from disk can load none.

/** @typedef {import("./protocol.js").Answer} Answer */

const LAST = ["loaded", "tokens", "written", "changed", "failed"]; // an answer of these ends a request

/**
 * Start a Worker. `hear` gets its answers; where it dies each request that waits is answered by "failed".
 * @param {(answer: Answer) => void} hear
 */
export function startLive(hear) {
  const url = URL.createObjectURL(new Blob([LIVE_WORKER], { type: "text/javascript" }));
  const worker = new Worker(url);
  /** @type {Set<number>} */
  const waiting = new Set();
  worker.onmessage = ({ data }) => {
    if (LAST.includes(data.op)) waiting.delete(data.id);
    hear(data);
  };
  worker.onerror = ({ message }) => {
    const told = message ? ` (${message})` : "";
    const say = `what runs the model has stopped${told}, and the model is gone; expected it to answer: load a smaller one`;
    for (const id of waiting) hear({ id, op: "failed", say });
    waiting.clear();
  };
  return {
    /** @param {import("./protocol.js").Ask} message @param {Transferable[]} transfer given away, not copied */
    ask(message, transfer = []) {
      if (message.do !== "stop") waiting.add(message.id);
      worker.postMessage(message, transfer);
    },
    end() {
      worker.terminate();
      URL.revokeObjectURL(url);
    },
  };
}
