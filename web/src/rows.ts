// What a message of the stream says: an event, and how its task stands by now.

import type { FeedEvent, TaskRow } from "./api";

export interface Change {
  event: FeedEvent;
  row: TaskRow | null;
}

/** The tasks that have changed, each as it stands now; null where only an event is known. */
export type Rows = Map<string, TaskRow | null>;

/** Takes a message in. Of several about one task the last one counts. */
export function merge(rows: Rows, told: unknown): void {
  const { event, row } = told as Change;
  if (row !== null) rows.set(row.id, row);
  else {
    // Something else than a task has changed: a session, or a refused result of a task.
    const about = String(event.event.task_id || event.id);
    if (!rows.has(about)) rows.set(about, null);
  }
}

/** How fresh an event is that an agent's clockwork writes, and that changes nothing one looks at. */
const ROUTINE = new Set(["LEASE_RENEWED", "SESSION_HEARTBEAT", "SETTLED"]);

export function isRoutine(told: unknown): boolean {
  return ROUTINE.has((told as Change).event.event_type);
}
