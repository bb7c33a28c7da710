// What an operator may do to a task: the words for it, and what is sent.

import type { ReviewInfo, TaskState } from "./api";
import { act } from "./client";
import { many } from "./format";
import type { Look } from "./ui";

export type ActName =
  | "release"
  | "assign"
  | "hold"
  | "reopen"
  | "reset"
  | "cancel"
  | "approve"
  | "reject"
  | "adopt"
  | "discard";

/** What the person has said besides yes. */
export interface Answers {
  agent?: string;
  hours?: string;
  reason?: string;
  cascade?: boolean;
}

export interface About {
  state: TaskState;
  refusedId?: string;
  /** Tasks that a reset with cascade resets, too. */
  cascade?: string[];
  /** The result that waits for a review, as the person has seen it. */
  review?: ReviewInfo;
  answers: Answers;
}

export interface Act {
  label: string;
  look: Look;
  /** Is the likely mistake to do it by accident? */
  grave?: boolean;
  /** Does it make sense for this task at all? The service decides; this only offers. */
  fits: (state: TaskState) => boolean;
  asks?: ("agent" | "reason" | "cascade")[];
  /** What will happen, to whom. */
  happens: (about: About) => string[];
  command: (about: About) => string[];
  send: (about: About, operation: string) => Promise<unknown>;
}

const OVER = ["COMPLETED", "CANCELLED"];

/** Is there a holder that looks alive? Its claim is taken away only by saying so. */
export function isLive({ state }: About): boolean {
  return state.holder !== null && state.holder.looks_alive;
}

function taken(about: About): string[] {
  const { state } = about;
  if (state.holder === null) return [];
  const { agent } = state.holder;
  const how = isLive(about)
    ? `${agent} is at work and looks alive. Its claim is superseded: it finds out when it renews.`
    : `${agent} no longer looks alive. Its claim is superseded.`;
  return [
    how,
    `Whatever ${agent} hands in at generation ${state.generation} is refused, and kept.`,
  ];
}

function force(about: About): string[] {
  return isLive(about) ? ["--force"] : [];
}

/** Without it the service refuses to take a live claim away. It is sent only if the person has read
 * that there is one. */
function over(about: About): { take_over: boolean } {
  return { take_over: isLive(about) };
}

/** Which result was looked at: another one that came meanwhile is not decided. */
function seen({ state, review }: About): { task_id: string; generation: number; digest: string } {
  return {
    task_id: state.task.id,
    generation: review?.generation ?? state.generation,
    digest: review?.digest ?? "",
  };
}

/** Its first digits are enough for a person, and for the service. */
export const DIGITS = 12;

function theResult({ review }: About): string {
  if (!review) return "The result";
  const { agent_id, session_id, generation, digest } = review;
  return `The result of ${agent_id || session_id} at generation ${generation}, digest ${digest.slice(0, DIGITS)},`;
}

/** Is the result that was looked at no longer the one that waits? */
export function isDecided({ state, review }: About): boolean {
  return (
    review !== undefined &&
    (state.review?.generation !== review.generation || state.review.digest !== review.digest)
  );
}

function reviewCommand(verb: string, about: About): string[] {
  const { task_id, generation, digest } = seen(about);
  return [
    ...["genlock", "review", verb, task_id, "-g", String(generation)],
    ...(digest ? ["--digest", digest.slice(0, DIGITS)] : []),
  ];
}

export const ACTS: Record<ActName, Act> = {
  approve: {
    label: "Approve",
    look: "done",
    fits: ({ state }) => state === "IN_REVIEW",
    happens: (about) => [
      `${theResult(about)} is accepted, in your name and the author's.`,
      "The task is completed, and what waits for it may begin.",
    ],
    command: (about) => reviewCommand("approve", about),
    send: (about, id) => act("approve_review", seen(about), id),
  },
  reject: {
    label: "Reject",
    look: "refused",
    grave: true,
    fits: ({ state }) => state === "IN_REVIEW",
    asks: ["reason"],
    happens: (about) => [
      `${theResult(about)} does not count. It is kept as a refused result, which can be adopted.`,
      `The task is open again, at a generation above ${about.review?.generation ?? "?"}: another agent may claim it.`,
      "The next holder gets what you write with its claim.",
    ],
    command: (about) => reviewCommand("reject", about),
    send: (about, id) =>
      act("reject_review", { ...seen(about), feedback: about.answers.reason ?? "" }, id),
  },
  release: {
    label: "Release",
    look: "stuck",
    grave: true,
    fits: ({ claim }) => claim !== null,
    happens: (about) => [
      ...taken(about),
      "The task is free again, and the next claim of it gets a higher generation.",
    ],
    command: (about) => ["genlock", "unlock", about.state.task.id, ...force(about)],
    send: (about, id) => act("force_release", { task_id: about.state.task.id, ...over(about) }, id),
  },
  assign: {
    label: "Assign",
    look: "moving",
    fits: ({ state }) => !OVER.includes(state),
    asks: ["agent"],
    happens: (about) => [
      ...taken(about),
      `Only ${about.answers.agent || "the agent that you name"} can claim the task, until the reservation ends.`,
    ],
    command: (about) => [
      "genlock",
      "assign",
      about.state.task.id,
      about.answers.agent || "AGENT",
      ...(about.answers.hours ? ["--hours", about.answers.hours] : []),
      ...force(about),
    ],
    send: (about, id) =>
      act(
        "assign_task",
        {
          task_id: about.state.task.id,
          agent_id: about.answers.agent ?? "",
          hours: about.answers.hours ? Number(about.answers.hours) : undefined,
          ...over(about),
        },
        id,
      ),
  },
  hold: {
    label: "Hold",
    look: "stuck",
    fits: ({ state }) => !OVER.includes(state) && state !== "HELD",
    asks: ["reason"],
    happens: ({ state }) => [
      "Nobody is granted the task until somebody reopens it.",
      ...(state.holder !== null ? [`${state.holder.agent} keeps its claim and may finish.`] : []),
    ],
    command: ({ state, answers }) => [
      "genlock",
      "hold",
      state.task.id,
      ...(answers.reason ? ["--reason", answers.reason] : []),
    ],
    send: ({ state, answers }, id) =>
      act("hold_task", { task_id: state.task.id, reason: answers.reason ?? "" }, id),
  },
  reopen: {
    label: "Reopen",
    look: "ready",
    fits: ({ state }) => state === "HELD" || state === "BACKLOG",
    happens: ({ state }) => [
      state.state === "BACKLOG"
        ? "The task leaves the backlog."
        : `The hold ends${state.hold_reason ? ` (${state.hold_reason})` : ""}, and its failures no longer count.`,
      "Agents can claim it as soon as everything that it waits for is done.",
    ],
    command: ({ state }) => ["genlock", "reopen", state.task.id],
    send: ({ state }, id) => act("reopen_task", { task_id: state.task.id }, id),
  },
  reset: {
    label: "Reset",
    look: "stuck",
    grave: true,
    fits: ({ state }) => state === "COMPLETED",
    asks: ["cascade"],
    happens: ({ state, cascade = [], answers }) => [
      `The task is open again, to be done at a generation above ${state.generation}. Its result stays in the history.`,
      ...(cascade.length === 0
        ? []
        : answers.cascade
          ? [
              `So are ${many(cascade.length, "completed task")} that rest on it: ${cascade.join(", ")}.`,
            ]
          : [
              `${many(cascade.length, "completed task")} that rest on it stay done, marked as made from an older input.`,
            ]),
    ],
    command: (about) => [
      "genlock",
      "reset",
      about.state.task.id,
      ...(about.answers.cascade ? ["--cascade"] : []),
      ...force(about),
    ],
    send: (about, id) =>
      act(
        "reset_task",
        { task_id: about.state.task.id, cascade: about.answers.cascade ?? false, ...over(about) },
        id,
      ),
  },
  cancel: {
    label: "Cancel",
    look: "stuck",
    grave: true,
    fits: ({ state }) => !OVER.includes(state),
    asks: ["reason"],
    happens: (about) => [
      ...taken(about),
      "The task will not be done. No import of a plan brings it back.",
      "What waits for it is treated as the policy cancelled_dependency says: usually it waits no longer.",
    ],
    command: (about) => [
      "genlock",
      "cancel",
      about.state.task.id,
      ...(about.answers.reason ? ["--reason", about.answers.reason] : []),
      ...force(about),
    ],
    send: (about, id) =>
      act(
        "cancel_task",
        { task_id: about.state.task.id, reason: about.answers.reason ?? "", ...over(about) },
        id,
      ),
  },
  adopt: {
    label: "Adopt",
    look: "done",
    fits: ({ state, refused_results }) => refused_results > 0 && !OVER.includes(state),
    happens: (about) => [
      "This refused result becomes the task's result, and the task is completed.",
      ...taken(about),
    ],
    command: (about) => [
      "genlock",
      "adopt",
      about.state.task.id,
      about.refusedId ?? "",
      ...force(about),
    ],
    send: (about, id) =>
      act(
        "adopt_result",
        { task_id: about.state.task.id, refused_id: about.refusedId ?? "", ...over(about) },
        id,
      ),
  },
  discard: {
    label: "Discard",
    look: "refused",
    grave: true,
    fits: ({ refused_results }) => refused_results > 0,
    happens: () => [
      "The data of this refused result is deleted. That it was handed in stays in the history.",
    ],
    command: ({ state, refusedId = "" }) => ["genlock", "discard", state.task.id, refusedId],
    send: ({ state, refusedId = "" }, id) =>
      act("discard_result", { task_id: state.task.id, refused_id: refusedId }, id),
  },
};

/** The acts that make sense for a task, without those about one of its refused results. */
export function actsFor(state: TaskState): ActName[] {
  return (Object.keys(ACTS) as ActName[]).filter(
    (name) => name !== "adopt" && name !== "discard" && ACTS[name].fits(state),
  );
}
