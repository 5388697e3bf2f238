// The page's side of the Worker. The bundle holds its script as text: a page from disk can load none.
import type { Answer, Ask } from "./protocol";

const LAST = ["loaded", "tokens", "written", "changed", "failed"]; // an answer of these ends a request

/**
 * Start a Worker. `hear` gets its answers. Where it dies each request that waits is answered by "failed", `died` is
 * called; another one, which has no model yet, is started with the next request.
 */
export function startLive(hear: (answer: Answer) => void, died = (_: string) => {}) {
  const url = URL.createObjectURL(new Blob([LIVE_WORKER], { type: "text/javascript" }));
  const waiting: Set<number> = new Set();
  let worker: Worker | null = started();

  function started() {
    const fresh = new Worker(url);
    fresh.onmessage = ({ data }) => {
      if (LAST.includes(data.op)) waiting.delete(data.id);
      hear(data);
    };
    fresh.onerror = ({ message }) => {
      fresh.terminate();
      worker = null;
      const told = message ? ` (${message})` : "";
      const say = `what ran the model has stopped${told}, and the model is gone; expected it to go on: load it again, or a smaller one`;
      const left = [...waiting];
      waiting.clear();
      died(say);
      for (const id of left) hear({ id, op: "failed", say });
    };
    return fresh;
  }

  return {
    /** `transfer` is given away, not copied. */
    ask(message: Ask, transfer: Transferable[] = []) {
      if (message.do === "stop") return worker?.postMessage(message);
      waiting.add(message.id);
      worker ??= started();
      worker.postMessage(message, transfer);
    },
    end() {
      worker?.terminate();
      URL.revokeObjectURL(url);
    },
  };
}
