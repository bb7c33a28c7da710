// Asking before an act, saying what came of it, and the keys.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ACTS, type About, type ActName, type Answers, DIGITS, isDecided, isLive } from "./acts";
import type { OperatorResult, ReviewInfo } from "./api";
import { forgetProof, Problem, proof, read, send } from "./client";
import { useRead } from "./data";
import { place, to } from "./router";
import { learnWho, mayAct } from "./state";
import { Dialog, Failed, type Look, Mark, Skeleton, Typed, wordOf } from "./ui";

export interface Asked {
  act: ActName;
  taskId: string;
  refusedId?: string;
  /** The result that the person has looked at; without it, the one that waits now. */
  review?: ReviewInfo;
}
/** The act that a person is being asked about. */
export const asked = signal<Asked | null>(null);
/** The task whose waiting result a person looks at. */
export const reviewed = signal<string | null>(null);
export const helpShown = signal(false);

interface Toast {
  id: number;
  look: Look;
  text: string;
}
const toasts = signal<Toast[]>([]);
let toastNumber = 0;

export function say(text: string, look: Look = "done"): void {
  const id = ++toastNumber;
  toasts.value = [...toasts.value.slice(-3), { id, look, text }];
  setTimeout(() => (toasts.value = toasts.value.filter((each) => each.id !== id)), 6000);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, look, text }) => (
        <div key={id} class={`toast ${look}`}>
          <Mark look={look} />
          {text}
        </div>
      ))}
    </div>
  );
}

/** A command with the project that it is about, unless that is the usual one. */
export function inProject(words: readonly string[]): string[] {
  const { tenant, project } = place.value;
  return [
    ...words,
    ...(tenant && tenant !== "default" && !words.includes("--tenant") ? ["--tenant", tenant] : []),
    ...(project && project !== "default" && !words.includes("--project")
      ? ["--project", project]
      : []),
  ];
}

export function signInPath(): string {
  return `/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`;
}

function outcome(name: ActName, taskId: string, answer: unknown): string {
  if (name === "discard") return `The refused result of ${taskId} was discarded.`;
  if (name === "approve") return `${taskId} is done: its result was approved.`;
  if (name === "reject") return `The result of ${taskId} was rejected; the task is open again.`;
  if (name === "adopt") return `${taskId} is done: the refused result was adopted.`;
  const { state, generation, superseded, cascade } = answer as OperatorResult;
  const also = cascade.length ? ` So were ${cascade.join(", ")}.` : "";
  const from = superseded ? ` ${superseded.agent}'s claim was superseded.` : "";
  return `${taskId} is ${wordOf(state)}, at generation ${generation}.${from}${also}`;
}

export function ActDialog() {
  const now = asked.value;
  return now && <Ask key={`${now.act} ${now.taskId} ${now.refusedId}`} {...now} />;
}

function Ask({ act: name, taskId, refusedId, review: looked }: Asked) {
  const act = ACTS[name];
  const close = () => (asked.value = null);
  const task = useRead(
    "get_task_state",
    { task_id: taskId },
    { concerns: (rows) => rows.has(taskId) },
  );
  const [answers, setAnswers] = useState<Answers>({});
  const [cascade, setCascade] = useState<string[]>([]);
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const operation = useRef(crypto.randomUUID());
  useEffect(() => {
    if (!act.asks?.includes("cascade") || !mayAct.value) return;
    read("preview_reset", { task_id: taskId }).then(setCascade, () => {});
  }, []);
  const reviewing = name === "approve" || name === "reject";
  const review = useRead("get_review", { task_id: taskId }, { when: reviewing && !looked });
  const seen = looked ?? review.data.value;
  const state = reviewing && !seen ? undefined : task.data.value;
  const about: About | undefined = state && {
    state,
    refusedId,
    cascade,
    review: seen,
    answers,
  };
  const decided = reviewing && about !== undefined && isDecided(about) && !busy;
  const lacks = act.asks?.includes("agent") && !answers.agent?.trim();
  const go = async () => {
    if (!about) return;
    setBusy(true);
    setProblem(undefined);
    try {
      const answer = await act.send(about, operation.current);
      say(outcome(name, taskId, answer), name === "discard" ? "refused" : "done");
      close();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status === 401) {
        forgetProof();
        void learnWho();
      } else task.reload();
      // Whatever has changed, this is another attempt.
      if (error.status !== 0 && error.status < 500) operation.current = crypto.randomUUID();
      setProblem(error);
      setBusy(false);
    }
  };
  const unread = task.error.value ?? review.error.value;
  const change = (more: Answers) => setAnswers({ ...answers, ...more });
  return (
    <Dialog title={`${act.label} ${taskId}`} close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void go();
        }}
      >
        <header>
          <Mark look={act.look} />
          <h2>
            {act.label} <span class="mono">{taskId}</span>
          </h2>
        </header>
        <div class="inner">
          {!about && !unread && <Skeleton lines={3} />}
          {unread && !about && <Failed problem={unread} />}
          {about && decided && <Decided about={about} close={close} />}
          {about && !decided && (
            <>
              <Fields
                reject={name === "reject"}
                asks={act.asks ?? []}
                answers={answers}
                change={change}
                cascade={cascade}
              />
              <ul class={`happens ${act.look}`} aria-label="what will happen">
                {act.happens(about).map((line) => (
                  <li key={line}>{line}</li>
                ))}
              </ul>
              <div>
                <p class="soft" style={{ marginBottom: "6px" }}>
                  The same from a terminal:
                </p>
                <Typed words={inProject(act.command(about))} />
              </div>
            </>
          )}
          {problem && <Refused problem={problem} />}
        </div>
        <div class="foot">
          <button type="button" class="btn" onClick={close}>
            Do nothing
          </button>
          {mayAct.value ? (
            <button
              type="submit"
              class={`btn ${act.grave ? "warn" : "go"}`}
              disabled={busy || !about || lacks || decided}
            >
              {busy
                ? "…"
                : about && isLive(about) && act.grave
                  ? `${act.label} it from ${about.state.holder!.agent}`
                  : act.label}
            </button>
          ) : (
            <a class="btn go" href={signInPath()}>
              Sign in to act
            </a>
          )}
        </div>
      </form>
    </Dialog>
  );
}

/** Somebody else was faster. What was looked at no longer waits, so there is nothing to confirm. */
function Decided({ about, close }: { about: About; close: () => void }) {
  const { state, review } = about;
  const { id } = state.task;
  const other = state.review;
  const by = state.feedback?.generation === review?.generation ? state.feedback?.by : "";
  return (
    <div class="happens stuck" role="status">
      <b>This result does not wait any more</b>
      <span>
        You have looked at generation {review?.generation}, digest{" "}
        {review?.digest.slice(0, DIGITS)}.{by && ` It was rejected by ${by}.`}
      </span>
      {other ? (
        <span>
          Now the result of {other.agent_id || other.session_id} at generation {other.generation},
          digest {other.digest.slice(0, DIGITS)}, waits. Look at it before you decide.
        </span>
      ) : (
        <span>
          The task is {wordOf(state.state)}, at generation {state.generation}.
        </span>
      )}
      <span>
        {other ? (
          <button
            type="button"
            class="btn"
            onClick={() => {
              close();
              reviewed.value = id;
            }}
          >
            Look at it
          </button>
        ) : (
          <a class="link" href={to("task", id)} onClick={close}>
            What has become of it
          </a>
        )}
      </span>
    </div>
  );
}

function Fields({
  asks,
  answers,
  change,
  cascade,
  reject,
}: {
  reject: boolean;
  asks: string[];
  answers: Answers;
  change: (more: Answers) => void;
  cascade: string[];
}) {
  const value = (event: Event) => (event.target as HTMLInputElement).value;
  return (
    <>
      {asks.includes("agent") && (
        <div class="row">
          <label class="grow">
            Agent
            <input
              class="field"
              style={{ width: "100%" }}
              required
              maxLength={255}
              value={answers.agent ?? ""}
              onInput={(event) => change({ agent: value(event) })}
            />
          </label>
          <label>
            Hours
            <input
              class="field"
              style={{ width: "72px", display: "block" }}
              type="number"
              min="0.1"
              step="any"
              placeholder="4"
              value={answers.hours ?? ""}
              onInput={(event) => change({ hours: value(event) })}
            />
          </label>
        </div>
      )}
      {asks.includes("reason") && (
        <label>
          {reject ? "What is wrong with it, for the next holder" : "Reason, for the history"}
          <input
            class="field"
            style={{ width: "100%" }}
            maxLength={1000}
            value={answers.reason ?? ""}
            onInput={(event) => change({ reason: value(event) })}
          />
        </label>
      )}
      {asks.includes("cascade") && cascade.length > 0 && (
        <label class="row">
          <input
            type="checkbox"
            checked={answers.cascade ?? false}
            onChange={(event) => change({ cascade: (event.target as HTMLInputElement).checked })}
          />
          Reset what rests on it, too ({cascade.length})
        </label>
      )}
    </>
  );
}

export function refusedBy(problem: Problem) {
  return <Refused problem={problem} />;
}

/** Why the service did not do it, and how to be let. */
function Refused({ problem }: { problem: Problem }) {
  const unknown = problem.status === 401 || problem.status === 403;
  return (
    <div class="happens stuck" role="alert">
      <b>{unknown ? "You may not do this yet" : "Nothing has changed"}</b>
      <span>{problem.message}.</span>
      {!unknown && problem.tryNext.map((words) => <Typed key={words.join(" ")} words={words} />)}
      {unknown && (
        <span>
          <a class="link" href={signInPath()}>
            Sign in to act
          </a>{" "}
          with an operator's key, or type <code>genlock link</code> where the service was started.
        </span>
      )}
    </div>
  );
}

/** While a person is there, the sign-in to act goes on. */
export function keepSignIn(): void {
  let moved = false;
  for (const sign of ["pointerdown", "keydown"])
    addEventListener(sign, () => (moved = true), { passive: true });
  setInterval(async () => {
    if (!moved || !mayAct.peek() || document.hidden) return;
    moved = false;
    try {
      await send("/sign-in/stay", { method: "POST", headers: proof() });
    } catch (error) {
      if (error instanceof Problem && error.status === 401) void learnWho();
    }
  }, 240_000);
}

const KEYS: [string, string][] = [
  ["/", "search"],
  ["Ctrl K", "search, go to and act, from one field"],
  ["j k", "next and previous line"],
  ["Enter", "open the line"],
  ["x", "choose the line; Shift x up to here, * all that match"],
  ["Esc", "close, or back to the list"],
  ["g", "graph, around the open task"],
  ["1 – 6", "overview, tasks, agents, graph, history, settings"],
  ["r", "take in what has changed"],
  ["?", "these keys"],
];

export function Help() {
  if (!helpShown.value) return null;
  const close = () => (helpShown.value = false);
  return (
    <Dialog title="Keys" close={close}>
      <header>
        <h2>Keys</h2>
      </header>
      <div class="inner">
        <dl class="keys">
          {KEYS.map(([key, what]) => (
            <>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{what}</dd>
            </>
          ))}
        </dl>
      </div>
      <div class="foot">
        <button type="button" class="btn" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
