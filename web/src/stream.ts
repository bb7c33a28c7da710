// One stream of a project's rows: in the shared worker, or in a tab where there is none.

export interface Scope {
  tenant: string;
  project: string;
}

/** How the connection is. `since` is when it began to be so. */
export interface Connection {
  state: "connecting" | "live" | "catching up" | "away" | "signed out" | "refused";
  since: number;
  why?: string;
}

export type Said =
  | { kind: "connection"; connection: Connection }
  | { kind: "rows"; rows: unknown[] }
  /** What came before cannot be told any more: ask for everything again. `lost`: the service no
   * longer knows how far this stream has read. */
  | { kind: "reset"; lost?: boolean };
/** What is said, and of which project. */
export type Told = Said & { key: string };

export function keyOf(scope: Scope): string {
  return `${scope.tenant}/${scope.project}`;
}

const QUIET_MS = 250;
const LONGEST_WAIT_MS = 15_000;
const CHECK_MS = 5_000;
const ASLEEP_MS = 40_000;

export class Stream {
  connection: Connection = { state: "connecting", since: Date.now() };
  private source: EventSource | null = null;
  private last = "";
  private lost = false;
  private wait = 500;
  private waiting: unknown[] = [];
  private timer = 0;
  private quiet = 0;
  private beat = Date.now();
  private readonly watch: number;
  private began = false;

  constructor(
    private readonly scope: Scope,
    private readonly send: (told: Told) => void,
  ) {
    this.watch = setInterval(() => this.check(), CHECK_MS) as unknown as number;
    this.open();
  }

  private tell(said: Said): void {
    this.send({ ...said, key: keyOf(this.scope) });
  }

  close(): void {
    clearInterval(this.watch);
    clearTimeout(this.timer);
    clearTimeout(this.quiet);
    this.source?.close();
    this.source = null;
  }

  /** Tries at once: somebody has signed in again, or looks. */
  again(): void {
    if (this.connection.state === "live" || this.connection.state === "connecting") return;
    this.wait = 500;
    this.set("connecting");
    this.open();
  }

  private get url(): string {
    const { tenant, project } = this.scope;
    const path = `/v1/${encodeURIComponent(tenant)}/${encodeURIComponent(project)}/events/stream`;
    return `${path}?shape=row${this.last ? `&after=${encodeURIComponent(this.last)}` : ""}`;
  }

  private open(): void {
    clearTimeout(this.timer);
    this.source?.close();
    const source = new EventSource(this.url, { withCredentials: true });
    this.source = source;
    source.onopen = () => {
      this.wait = 500;
      const back = this.began;
      this.began = true;
      this.set(back && this.last ? "catching up" : "live");
      if (back && !this.last) this.tell({ kind: "reset", lost: this.lost });
      this.lost = false;
      this.settle();
    };
    source.onmessage = (event: MessageEvent<string>) => {
      if (event.lastEventId) this.last = event.lastEventId;
      const row: unknown = JSON.parse(event.data);
      if (Array.isArray(row)) this.waiting.push(...row);
      else this.waiting.push(row);
      this.settle();
      if (this.waiting.length === 1) setTimeout(() => this.flush(), 16);
    };
    source.onerror = () => {
      if (source !== this.source) return;
      this.set("away");
      if (source.readyState === EventSource.CLOSED) void this.ask();
    };
  }

  private flush(): void {
    if (!this.waiting.length) return;
    const rows = this.waiting;
    this.waiting = [];
    this.tell({ kind: "rows", rows });
  }

  /** Caught up is who hears nothing more for a moment. */
  private settle(): void {
    clearTimeout(this.quiet);
    if (this.connection.state === "catching up")
      this.quiet = setTimeout(() => this.set("live"), QUIET_MS) as unknown as number;
  }

  /** A stream that was refused does not say why: a plain request does. */
  private async ask(): Promise<void> {
    this.source?.close();
    let status = 0;
    let why = "";
    const abort = new AbortController();
    try {
      const answer = await fetch(this.url, { signal: abort.signal, cache: "no-store" });
      status = answer.status;
      if (!answer.ok) why = String(((await answer.json()) as { detail?: string }).detail ?? "");
    } catch {
      status ||= 0;
    }
    abort.abort();
    if (status === 401) return this.set("signed out", why);
    if (status === 403 || status === 404) return this.set("refused", why);
    if (status === 410) {
      // It goes on from now, and says that something is missing.
      this.last = "";
      this.lost = true;
    }
    this.timer = setTimeout(() => this.open(), this.wait) as unknown as number;
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
  }

  /** A machine that has slept may hold a connection that is none any more. */
  private check(): void {
    const now = Date.now();
    if (now - this.beat > ASLEEP_MS && this.connection.state === "live") {
      this.set("away");
      this.open();
    }
    this.beat = now;
  }

  private set(state: Connection["state"], why = ""): void {
    if (state === this.connection.state && why === (this.connection.why ?? "")) return;
    if (state === "away" && this.connection.state === "signed out") return;
    this.connection = { state, since: Date.now(), why };
    this.tell({ kind: "connection", connection: this.connection });
  }
}
