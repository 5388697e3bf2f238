/** The Worker's script, worker.ts and what it imports, as tools/bundle.mjs puts it in. */
declare const LIVE_WORKER: string;
