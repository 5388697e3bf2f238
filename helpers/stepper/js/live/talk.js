// Asks the Worker, and waits for its answers.

/** @typedef {import("./protocol").Ask} Ask @typedef {import("./protocol").Answer} Answer */
/** An ask without its id, which is given here.
 * @typedef {Ask extends infer One ? One extends { id: number } ? Omit<One, "id"> : never : never} Question */

export class Talk {
  /** @param {typeof import("./start.js").startLive} start @param {(say: string) => void} [died] */
  constructor(start, died) {
    this.worker = start((answer) => this.hear(answer), died);
    this.last = 0;
    /** @type {Map<number, { each: (answer: any) => void, done: (answer: any) => void }>} */
    this.asked = new Map();
  }

  /**
   * The last answer to a question; `each` gets those before it. What could not be done is answered by `failed`.
   * @param {Question} question @returns {Promise<any>}
   */
  ask(question, each = (/** @type {any} */ _) => {}) {
    const id = ++this.last;
    return new Promise((done) => {
      this.asked.set(id, { each, done });
      this.worker.ask(/** @type {Ask} */ ({ ...question, id }));
    });
  }

  /** @param {Answer} answer */
  hear(answer) {
    const waiting = this.asked.get(answer.id);
    if (answer.op === "pass" || answer.op === "progress") return waiting?.each(answer);
    this.asked.delete(answer.id);
    waiting?.done(answer);
  }

  stop() {
    this.worker.ask({ do: "stop" });
  }

  end() {
    this.worker.end();
  }
}
