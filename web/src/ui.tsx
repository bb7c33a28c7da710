// The small pieces that all screens are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Problem, now } from "./client";
import { ago, clock, countdown, shell, span, whole } from "./format";
import { to } from "./router";

/** How something stands: a colour, a shape and a word. */
export type Look = "done" | "moving" | "ready" | "blocked" | "stuck" | "refused";

const LOOKS: Record<string, [Look, string, string?]> = {
  COMPLETED: ["done", "done"],
  IN_PROGRESS: ["moving", "working"],
  IN_REVIEW: ["stuck", "in review", "half"],
  PENDING: ["ready", "ready"],
  BLOCKED: ["blocked", "blocked"],
  BACKLOG: ["blocked", "backlog", "dashed"],
  HELD: ["stuck", "held"],
  CANCELLED: ["blocked", "cancelled", "cross"],
};
export const STATES = Object.keys(LOOKS);

export function lookOf(state: string): Look {
  return LOOKS[state]?.[0] ?? "blocked";
}

export function wordOf(state: string): string {
  return LOOKS[state]?.[1] ?? state.toLowerCase();
}

const SHAPES: Record<string, ComponentChildren> = {
  done: (
    <>
      <circle cx="6" cy="6" r="6" fill="currentColor" />
      <path
        d="M3.2 6.2 5.2 8.2 8.9 4.2"
        fill="none"
        stroke="var(--card)"
        stroke-width="1.6"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </>
  ),
  moving: <path d="M2 1.2 11 6 2 10.8Z" fill="currentColor" />,
  ready: <circle cx="6" cy="6" r="4.9" fill="none" stroke="currentColor" stroke-width="2" />,
  blocked: (
    <path
      d="M6 1 11 6 6 11 1 6Z"
      fill="none"
      stroke="currentColor"
      stroke-width="1.5"
      stroke-linejoin="round"
    />
  ),
  dashed: (
    <path
      d="M6 1 11 6 6 11 1 6Z"
      fill="none"
      stroke="currentColor"
      stroke-width="1.5"
      stroke-dasharray="2 1.6"
    />
  ),
  cross: (
    <path
      d="M2.5 2.5 9.5 9.5M9.5 2.5 2.5 9.5"
      stroke="currentColor"
      stroke-width="1.8"
      stroke-linecap="round"
    />
  ),
  half: (
    <>
      <circle cx="6" cy="6" r="5" fill="none" stroke="currentColor" stroke-width="1.5" />
      <path d="M6 1a5 5 0 0 1 0 10Z" fill="currentColor" />
    </>
  ),
  stuck: (
    <>
      <path
        d="M6 .8 11.6 11H.4Z"
        fill="currentColor"
        stroke="currentColor"
        stroke-linejoin="round"
      />
      <path d="M6 4.4V7.4M6 9v.3" stroke="var(--card)" stroke-width="1.4" stroke-linecap="round" />
    </>
  ),
  refused: (
    <>
      <circle cx="6" cy="6" r="5" fill="none" stroke="currentColor" stroke-width="1.7" />
      <path d="M2.7 9.3 9.3 2.7" stroke="currentColor" stroke-width="1.7" />
    </>
  ),
};

export function Mark({ look, shape = look }: { look: Look; shape?: string }) {
  return (
    <svg class={`g ${look}`} viewBox="0 0 12 12" aria-hidden="true">
      {SHAPES[shape]}
    </svg>
  );
}

export function State({ state, big = false }: { state: string; big?: boolean }) {
  const [look, word, shape] = LOOKS[state] ?? ["blocked", state.toLowerCase()];
  return (
    <span class={`st ${look} ${big ? "big" : ""}`}>
      <Mark look={look as Look} shape={shape} />
      {word}
    </span>
  );
}

const CLAIMS: Record<string, [Look, string, string]> = {
  WORKING: ["moving", "[*]", "in flight"],
  STALE: ["stuck", "[!]", "stale"],
  OVERDUE: ["stuck", "[!]", "overdue"],
  SILENT: ["stuck", "[!]", "silent"],
  ENDED: ["stuck", "[!]", "session ended"],
  GONE: ["stuck", "[!]", "process gone"],
  AVAILABLE: ["ready", "--", "available"],
};

/** How a claim is doing: in flight, stale or worse, or nobody's. */
export function Claim({ health, why }: { health: string; why?: string }) {
  const [look, sign, word] = CLAIMS[health] ?? ["blocked", "--", health.toLowerCase()];
  return (
    <span class={`badge ${look}`} title={why || undefined}>
      <code aria-hidden="true">{sign}</code>
      {word}
    </span>
  );
}

export function TaskId({ id, subject = id }: { id: string; subject?: string }) {
  return (
    <a class="id" href={to("task", subject)}>
      <bdi>{id}</bdi>
    </a>
  );
}

/** How much of the lease is left, and for how long. */
export function Lease({
  until,
  seconds,
  health = "WORKING",
  full = false,
}: {
  until: string | null;
  seconds: number;
  health?: string;
  /** Also say how long all of it is. */
  full?: boolean;
}) {
  if (until === null) return <NoLease look={health === "WORKING" ? "moving" : "stuck"} />;
  const left = (Date.parse(until) - now.value) / 1000;
  const share = Math.max(0, Math.min(1, left / (seconds || 1)));
  const look: Look = health !== "WORKING" || share < 0.15 ? "stuck" : "moving";
  return (
    <span class={`row grow ${look}`} title={`a lease of ${span(seconds)}, until ${whole(until)}`}>
      <span class="num" style={{ minWidth: "7ch", textAlign: "left" }}>
        {left > 0 ? `${countdown(left)} left` : "over"}
        {full && ` of a lease of ${span(seconds)}`}
      </span>
      <span class="lease" aria-hidden="true">
        <i style={{ width: `${share * 100}%` }} />
      </span>
    </span>
  );
}

/** A claim without a lease: it ends with its session or process, and never by time. */
function NoLease({ look }: { look: Look }) {
  return (
    <span class={`num ${look}`} title="The claim ends with its session, and never by time.">
      no lease
    </span>
  );
}

export function Left({ until }: { until: string | null }) {
  if (until === null) return <span class="num">no lease</span>;
  const left = (Date.parse(until) - now.value) / 1000;
  return <span class="num">{left > 0 ? countdown(left) : "over"}</span>;
}

/** A time as its distance from now; the whole of it when one points at it. */
export function Ago({ at }: { at: string }) {
  return (
    <time dateTime={at} title={whole(at)}>
      {ago(at, now.value)}
    </time>
  );
}

export function At({ at }: { at: string }) {
  return (
    <time dateTime={at} title={`${whole(at)} · ${ago(at, now.value)}`}>
      {clock(at, now.value)}
    </time>
  );
}

/** A command to be typed, and a button that copies it. */
export function Typed({ words }: { words: readonly string[] }) {
  const [copied, setCopied] = useState(false);
  const line = shell(words);
  const copy = async () => {
    await navigator.clipboard.writeText(line);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <span class="typed">
      <code tabIndex={0} role="textbox" aria-readonly="true" aria-label={`command: ${line}`}>
        {line}
      </code>
      {navigator.clipboard && (
        <button type="button" onClick={copy} aria-label={`copy: ${line}`}>
          {copied ? "copied" : "copy"}
        </button>
      )}
    </span>
  );
}

/** A field whose text counts once it is entered. What is being typed outlives a new render, of
 * which live changes cause many. */
export function Sought({
  value,
  name,
  hint,
  seek,
}: {
  value: string;
  name: string;
  hint: string;
  seek: (text: string | undefined) => void;
}) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return (
    <input
      class="field"
      type="search"
      aria-label={name}
      placeholder={hint}
      value={typed}
      onInput={(event) => setTyped(event.currentTarget.value)}
      onChange={(event) => seek(event.currentTarget.value.trim() || undefined)}
    />
  );
}

/** Nothing to show, and what one may type to change that. */
export function Empty({
  title,
  children,
  type,
}: {
  title: string;
  children?: ComponentChildren;
  type?: string[];
}) {
  return (
    <div class="none-box">
      <b>{title}</b>
      {children && <span>{children}</span>}
      {type && <Typed words={type} />}
    </div>
  );
}

export function Failed({ problem, retry }: { problem: Problem; retry?: () => void }) {
  const heads: Record<number, string> = {
    0: "The service does not answer",
    401: "You are not signed in any more",
    403: "This is not for your key",
    404: "There is no such thing here",
  };
  return (
    <div class="none-box" role="alert">
      <b>{heads[problem.status] ?? "That did not work"}</b>
      <span class="grow">{problem.message}</span>
      {problem.tryNext.map((words) => (
        <Typed key={words.join(" ")} words={words} />
      ))}
      {problem.status === 401 && (
        <a class="btn go" href={`/sign-in?next=${encodeURIComponent(location.pathname)}`}>
          Sign in
        </a>
      )}
      {retry && problem.status !== 401 && (
        <button type="button" class="btn" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="loading">
      {Array.from({ length: lines }, (_, at) => (
        <i key={at} />
      ))}
    </div>
  );
}

export function Dialog({
  title,
  close,
  children,
  wide,
  kind = "",
}: {
  title: string;
  close: () => void;
  children: ComponentChildren;
  wide?: boolean;
  kind?: string;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`${wide ? "wide" : ""} ${kind}`}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => event.target === dialog.current && close()}
    >
      {children}
    </dialog>
  );
}
