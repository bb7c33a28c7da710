// Calls of the service's operations, by name, with the types of its own OpenAPI document.

import { batch, signal } from "@preact/signals";
import { type Operations, ROUTES } from "./api";
import { place } from "./router";

export type Name = keyof Operations;
export type Takes<N extends Name> = Operations[N]["takes"];
export type Answers<N extends Name> = Operations[N]["answers"];

export interface Scope {
  tenant: string;
  project: string;
}

/** What went wrong, as the service says it. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly tryNext: string[][] = [],
    readonly body: Record<string, unknown> = {},
  ) {
    super(message);
  }
}

/** Is the sign-in over? Everything that is shown stays, and says how old it is. */
export const signedOut = signal(false);

/** How much later it is at the service, in milliseconds. A wrong local clock does no harm. */
const skew = signal(0);
/** The service's time. It moves on once a second. */
export const now = signal(Date.now());
let best = Number.POSITIVE_INFINITY;

export function tick(): void {
  now.value = Date.now() + skew.peek();
}

/** A `Date` header has whole seconds: the truth is within the second after it. The answer that came
 * back fastest knows best. */
function learn(date: string | null, asked: number): void {
  if (date === null) return;
  const took = Date.now() - asked;
  const told = Date.parse(date) + 500;
  const seen = told - (asked + took / 2);
  if (Number.isNaN(seen) || (took >= best && Math.abs(seen - skew.peek()) < 2000)) return;
  best = took;
  // Within the second that the header leaves open, the local clock is as good.
  skew.value = Math.abs(seen) < 1000 ? 0 : seen;
}

export function pathFor(
  name: Name,
  given: Record<string, unknown>,
  scope: Scope,
): [string, Set<string>] {
  const used = new Set<string>();
  const path = ROUTES[name][1].replace(/\{(\w+)\}/g, (_, key: string) => {
    if (key === "tenant" || key === "project") return encodeURIComponent(scope[key]);
    used.add(key);
    return encodeURIComponent(String(given[key]));
  });
  return [path, used];
}

export function query(given: Record<string, unknown>, used: Set<string>): string {
  const asked = new URLSearchParams();
  for (const [key, value] of Object.entries(given)) {
    if (used.has(key) || value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) asked.append(key, String(one));
  }
  const text = asked.toString();
  return text && `?${text}`;
}

/** What stands in the path of an operation is taken from `given` too. */
type Given<N extends Name> = Takes<N> & { task_id?: string; session_id?: string; key_id?: string };

/** Asks for something. It changes nothing. */
export async function read<N extends Name>(
  name: N,
  given: Given<N>,
  {
    scope = place.peek() as Scope,
    abort,
    headers = {},
  }: { scope?: Scope; abort?: AbortSignal; headers?: Record<string, string> } = {},
): Promise<Answers<N>> {
  const [path, used] = pathFor(name, given as Record<string, unknown>, scope);
  if (ROUTES[name][0] === "GET")
    return (await send(path + query(given as Record<string, unknown>, used), {
      signal: abort,
    })) as Answers<N>;
  return (await post(
    name,
    path,
    used,
    given as Record<string, unknown>,
    headers,
    abort,
  )) as Answers<N>;
}

const PROOF = "genlock.proof";

/** A sign-in to act hands its proof over behind the `#` of the address, once. */
export function keepProof(): void {
  const found = /^#act=([0-9a-f]{64})$/.exec(location.hash);
  if (found === null) return;
  localStorage.setItem(PROOF, found[1]!);
  history.replaceState(null, "", location.pathname + location.search);
}

/** What a request that acts sends beside the cookie, which alone is not enough. */
export function proof(): Record<string, string> {
  const kept = localStorage.getItem(PROOF);
  return kept === null ? {} : { "x-genlock-proof": kept };
}

export function forgetProof(): void {
  localStorage.removeItem(PROOF);
}

/** Carries out an operator's act. */
export async function act<N extends Name>(
  name: N,
  given: Given<N>,
  operation: string = crypto.randomUUID(),
): Promise<Answers<N>> {
  const scope = place.peek() as Scope;
  const [path, used] = pathFor(name, given as Record<string, unknown>, scope);
  const headers = { "Idempotency-Key": operation, ...proof() };
  return (await post(name, path, used, given as Record<string, unknown>, headers)) as Answers<N>;
}

function post(
  name: Name,
  path: string,
  used: Set<string>,
  given: Record<string, unknown>,
  headers: Record<string, string>,
  signal?: AbortSignal,
): Promise<unknown> {
  const body = Object.fromEntries(
    Object.entries(given).filter(([key, value]) => !used.has(key) && value !== undefined),
  );
  return send(path, {
    method: ROUTES[name][0],
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal,
  });
}

export async function send(path: string, init: RequestInit = {}): Promise<unknown> {
  const asked = Date.now();
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(path, { cache: "no-store", credentials: "same-origin", ...init });
    text = await answer.text(); // it breaks off if the service is killed meanwhile
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Problem(0, "UNREACHABLE", "the service does not answer");
  }
  learn(answer.headers.get("date"), asked);
  const body =
    text && /json/.test(answer.headers.get("content-type") ?? "") ? JSON.parse(text) : null;
  if (answer.ok) {
    if (signedOut.peek() && (init.method ?? "GET") === "GET")
      batch(() => (signedOut.value = false));
    return body;
  }
  if (answer.status === 401 && (init.method ?? "GET") === "GET") signedOut.value = true;
  const said = (body ?? {}) as Record<string, unknown>;
  throw new Problem(
    answer.status,
    String(said.code ?? said.reason ?? answer.status),
    String(said.message ?? said.detail ?? `the service answered ${answer.status}`),
    (said.try_next as string[][]) ?? [],
    said,
  );
}
