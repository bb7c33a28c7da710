import { expect, test } from "vitest";
import { isRoutine, merge, type Rows } from "../src/rows";

const event = (event_type: string, more: object = {}) => ({
  event_type,
  id: "a",
  event: { task_id: "a" },
  ...more,
});
const row = (generation: number) => ({ id: "a", generation });

test("of several rows of one task the last one counts", () => {
  const rows: Rows = new Map();
  merge(rows, { event: event("CLAIM_ACQUIRED"), row: row(1) });
  merge(rows, { event: event("CLAIM_EXPIRED"), row: row(2) });
  expect([...rows]).toEqual([["a", row(2)]]);
});

test("an event without a row does not hide the row that came before it", () => {
  const rows: Rows = new Map();
  merge(rows, { event: event("CLAIM_ACQUIRED"), row: row(1) });
  merge(rows, { event: event("RESULT_REJECTED"), row: null });
  expect(rows.get("a")).toEqual(row(1));
});

test("a refused result concerns its task, and an event of a session the session", () => {
  const rows: Rows = new Map();
  merge(rows, { event: event("RESULT_DISCARDED", { id: "a/1/s/0123" }), row: null });
  merge(rows, { event: event("SESSION_ENDED", { id: "s", event: {} }), row: null });
  expect([...rows.keys()]).toEqual(["a", "s"]);
});

test("renewals are routine, and what changes a count is not", () => {
  expect(isRoutine({ event: event("LEASE_RENEWED") })).toBe(true);
  expect(isRoutine({ event: event("RESULT_ACCEPTED") })).toBe(false);
});
