import { expect, test } from "vitest";
import type { ClaimSpan } from "../src/api";
import { type Grouping, groupsOf, rowsOf } from "../src/lanes";

const claim = (agent: string, track: string | null, user: string, open = false): ClaimSpan => ({
  agent_id: agent,
  session_id: `s-${agent}`,
  user_id: user,
  track,
  task_id: `${track ?? ""}-1`,
  generation: 1,
  start: "2026-11-20T00:00:00Z",
  end: open ? null : "2026-11-20T00:01:00Z",
  ended: open ? null : "COMPLETED",
  health: open ? "WORKING" : null,
});
const CLAIMS = [
  claim("ann", "A", "kim"),
  claim("ann", "B", "kim", true),
  claim("bob", "A", "kim"),
  claim("cy", null, ""),
];
const drawn = (by: Grouping, folded: string[] = []) =>
  rowsOf(groupsOf(CLAIMS, by), new Set(folded)).map(
    (row) => `${row.kind === "group" ? "# " : ""}${row.label} ${row.spans.length}`,
  );

test("by agent there is one line for each agent, those at work first", () => {
  expect(drawn("agent")).toEqual(["ann 2", "bob 1", "cy 1"]);
});

test("by track an agent has a line in each track with its claims there", () => {
  expect(drawn("track")).toEqual([
    "# Track A 0",
    "ann 1",
    "bob 1",
    "# Track B 0",
    "ann 1",
    "# no track 0",
    "cy 1",
  ]);
});

test("a folded group is one line with all its claims", () => {
  expect(drawn("track", ["A", "-"])).toEqual([
    "# Track A 2",
    "# Track B 0",
    "ann 1",
    "# no track 1",
  ]);
});

test("by user and by session those at work come first", () => {
  expect(drawn("user")).toEqual(["# kim 0", "ann 2", "bob 1", "# no user 0", "cy 1"]);
  expect(drawn("session")).toEqual(["# s-ann 0", "ann 2", "# s-bob 0", "bob 1", "# s-cy 0", "cy 1"]);
});

test("the name of a group says how many are at work in it", () => {
  const [kim] = rowsOf(groupsOf(CLAIMS, "user"), new Set());
  expect(kim!.sum).toBe("2 agents, 1 at work");
});
