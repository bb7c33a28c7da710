// What the page knows of the stream: how the connection is, and which tasks have changed.
//
// A tab follows the stream first and asks for a snapshot when it is live: whatever commits after
// the snapshot was read comes by the stream, so nothing falls between the two. Rows that the
// snapshot has already do no harm: they say how a task stands, not what has happened to it.

import { effect, signal } from "@preact/signals";
import { isRoutine, merge, type Rows } from "./rows";
import { place } from "./router";
import { type Connection, keyOf, type Scope, Stream, type Told } from "./stream";
import type { Asked } from "./worker";

export const connection = signal<Connection>({ state: "connecting", since: Date.now() });

/** When everything was read again because the service had lost this page's place; 0: never, or the
 * person has read it. */
export const lostAt = signal(0);

/** Told of what has changed; null: everything may have. `routine`: nothing but renewals and the
 * like, which change a row and no count. */
type Listener = (rows: Rows | null, routine: boolean) => void;
const listeners = new Set<Listener>();

export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const HIDDEN_MS = 60_000;
const MOST_WAITING = 2000;
const HERE_MS = 30_000;
/** Renewals move countdowns, which nobody reads to the frame. */
const ROUTINE_MS = 250;

let waiting: Rows = new Map();
let routine = true;
let lost = false;
let asked: "" | "later" | "next frame" = "";
let timer = 0;
let hiddenSince = 0;

/** What has changed is shown with the next frame; what is only routine, a few times a second. */
function schedule(): void {
  const calm = routine && !lost;
  if (asked === "next frame" || (asked === "later" && (calm || document.hidden))) return;
  clearTimeout(timer);
  asked = calm || document.hidden ? "later" : "next frame";
  // Frames stop in a tab that nobody sees; events do not.
  if (document.hidden) timer = setTimeout(flush, 1000) as unknown as number;
  else if (calm) timer = setTimeout(flush, ROUTINE_MS) as unknown as number;
  else requestAnimationFrame(flush);
}

function flush(): void {
  asked = "";
  if (waiting.size === 0 && !lost) return;
  const rows = lost || waiting.size > MOST_WAITING ? null : waiting;
  const was = routine;
  waiting = new Map();
  lost = false;
  routine = true;
  for (const listener of listeners) listener(rows, was);
}

export function reset(): void {
  lost = true;
  schedule();
}

let wasAway = false;

function notice(now: Connection): void {
  connection.value = now;
  if (now.state === "away" || now.state === "signed out") wasAway = true;
  else if (now.state === "live" && wasAway) {
    // The stream has caught up. What could not be read meanwhile is read now.
    wasAway = false;
    reset();
  }
}

function hear(told: Told): void {
  if (told.key !== keyOf(place.peek())) return; // of a project that was left
  if (told.kind === "connection") notice(told.connection);
  else if (told.kind === "reset") {
    if (told.lost) lostAt.value = Date.now();
    reset();
  }
  else {
    for (const each of told.rows) {
      merge(waiting, each);
      routine &&= isRoutine(each);
    }
    if (waiting.size) schedule();
  }
}

let ask: (asked: Asked) => void;

function start(): void {
  if (typeof SharedWorker !== "undefined") {
    const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), {
      type: "module",
      name: "genlock",
    });
    worker.port.onmessage = ({ data }: MessageEvent<Told>) => hear(data);
    ask = (what) => worker.port.postMessage(what);
    setInterval(() => ask({ kind: "here" }), HERE_MS);
    return;
  }
  let stream: Stream | null = null;
  ask = (what) => {
    if (what.kind === "again") stream?.again();
    if (what.kind === "follow" || what.kind === "leave") stream?.close();
    if (what.kind === "follow") stream = new Stream(what.scope, hear);
  };
}

export function again(): void {
  ask({ kind: "again" });
}

/** Follows the project that is shown, for as long as the page is there. */
export function begin(): void {
  start();
  let followed = "";
  effect(() => {
    const { tenant, project } = place.value;
    const key = keyOf({ tenant, project });
    if (key === followed) return;
    followed = key;
    connection.value = { state: "connecting", since: Date.now() };
    if (project) ask({ kind: "follow", scope: { tenant, project } satisfies Scope });
    else ask({ kind: "leave" });
  });
  addEventListener("pagehide", () => ask({ kind: "leave" }));
  addEventListener("pageshow", (event) => {
    if (!event.persisted || !place.peek().project) return;
    const { tenant, project } = place.peek();
    ask({ kind: "follow", scope: { tenant, project } });
    reset();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      hiddenSince = Date.now();
      // The frame that was asked for does not come.
      if (asked) {
        asked = "";
        schedule();
      }
    } else {
      ask({ kind: "here" });
      if (hiddenSince && Date.now() - hiddenSince > HIDDEN_MS) reset();
      else schedule();
      hiddenSince = 0;
    }
  });
}

/** Settles when the stream is there, or after a moment: a page without a stream is still a page. */
export function whenLive(): Promise<void> {
  return new Promise((done) => {
    const end = setTimeout(finish, 700);
    const stop = effect(() => {
      if (connection.value.state !== "connecting") queueMicrotask(finish);
    });
    function finish(): void {
      clearTimeout(end);
      stop();
      done();
    }
  });
}
