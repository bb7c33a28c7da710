// One stream for all tabs of a browser: over HTTP/1.1 the seventh would hang for ever.

import { keyOf, type Scope, Stream, type Told } from "./stream";

interface Follower {
  port: MessagePort;
  key: string;
  seen: number;
}
export type Asked =
  { kind: "follow"; scope: Scope } | { kind: "again" } | { kind: "here" } | { kind: "leave" };

const GONE_MS = 180_000;
const streams = new Map<string, Stream>();
const followers = new Set<Follower>();

function follow(follower: Follower, scope: Scope): void {
  leave(follower);
  follower.key = keyOf(scope);
  followers.add(follower);
  const { key, port } = follower;
  const known = streams.get(key);
  if (known !== undefined) {
    // Whoever comes may have signed in meanwhile.
    known.again();
    port.postMessage({ kind: "connection", connection: known.connection, key } satisfies Told);
    return;
  }
  const tell = (told: Told) => {
    for (const each of followers) if (each.key === key) each.port.postMessage(told);
  };
  streams.set(key, new Stream(scope, tell));
}

function leave(follower: Follower): void {
  followers.delete(follower);
  if ([...followers].some((other) => other.key === follower.key)) return;
  streams.get(follower.key)?.close();
  streams.delete(follower.key);
}

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0]!;
  const follower: Follower = { port, key: "", seen: Date.now() };
  let scope: Scope | null = null;
  port.onmessage = ({ data }: MessageEvent<Asked>) => {
    follower.seen = Date.now();
    if (data.kind === "follow") follow(follower, (scope = data.scope));
    else if (data.kind === "again") streams.get(follower.key)?.again();
    else if (data.kind === "leave") leave(follower);
    else if (scope !== null && !followers.has(follower)) {
      // It was taken for gone: what it has missed it has to ask for.
      follow(follower, scope);
      port.postMessage({ kind: "reset", key: follower.key } satisfies Told);
    }
  };
};

// A tab that crashed says no goodbye.
setInterval(() => {
  for (const each of followers) if (Date.now() - each.seen > GONE_MS) leave(each);
}, 30_000);
