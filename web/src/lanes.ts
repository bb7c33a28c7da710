// Claims as lines of a timeline: one for each agent, in groups. Pure functions.

import type { ClaimSpan } from "./api";
import { many } from "./format";

export type Grouping = "agent" | "session" | "user" | "track";

export interface Lane {
  name: string;
  spans: ClaimSpan[];
  /** Does it hold something now? */
  open: boolean;
}

export interface Group {
  key: string;
  /** What stands above its lines; "" if there is one group of all agents. */
  label: string;
  lanes: Lane[];
  open: boolean;
}

/** A line as it is drawn. */
export interface Row {
  kind: "group" | "lane";
  key: string;
  label: string;
  spans: ClaimSpan[];
  open: boolean;
  /** Of a group: is it shown as one line? */
  folded: boolean;
  /** Of a group: how many work there. */
  sum: string;
  inGroup: boolean;
}

/** The key of those that have no user or no track. */
const NOBODY = "-";

function keyOf(each: ClaimSpan, by: Grouping): string {
  switch (by) {
    case "agent":
      return "";
    case "session":
      return each.session_id;
    case "user":
      return each.user_id || NOBODY;
    case "track":
      return each.track || NOBODY;
  }
}

const first = <T extends { open: boolean }>(name: (each: T) => string) => {
  return (a: T, b: T) => Number(b.open) - Number(a.open) || name(a).localeCompare(name(b));
};

/** Those at work come first, but tracks stay where they are: a plan is read in their order. */
export function groupsOf(spans: ClaimSpan[], by: Grouping): Group[] {
  const found = new Map<string, Map<string, Lane>>();
  for (const each of spans) {
    const key = keyOf(each, by);
    let lanes = found.get(key);
    if (!lanes) found.set(key, (lanes = new Map<string, Lane>()));
    const name = each.agent_id || each.session_id;
    let lane = lanes.get(name);
    if (!lane) lanes.set(name, (lane = { name, spans: [], open: false }));
    lane.spans.push(each);
    lane.open ||= each.end === null;
  }
  const groups = [...found].map(([key, lanes]) => {
    const sorted = [...lanes.values()].sort(first((lane) => lane.name));
    const open = sorted.some((lane) => lane.open);
    const label = key === NOBODY ? `no ${by}` : by === "track" ? `Track ${key}` : key;
    return { key, label, lanes: sorted, open };
  });
  return by === "track"
    ? groups.sort((a, b) => Number(a.key === NOBODY) - Number(b.key === NOBODY) || a.key.localeCompare(b.key))
    : groups.sort(first((group) => group.label));
}

/** The lines from top to bottom. A folded group is one line with the claims of all its agents. */
export function rowsOf(groups: Group[], folded: ReadonlySet<string>): Row[] {
  return groups.flatMap((group) => {
    const inGroup = group.label !== "";
    const lanes = group.lanes.map(
      (lane): Row => ({
        kind: "lane",
        key: `${group.key} ${lane.name}`,
        label: lane.name,
        spans: lane.spans,
        open: lane.open,
        folded: false,
        sum: "",
        inGroup,
      }),
    );
    if (!inGroup) return lanes;
    const isFolded = folded.has(group.key);
    const busy = group.lanes.filter((lane) => lane.open).length;
    const head: Row = {
      kind: "group",
      key: group.key,
      label: group.label,
      spans: isFolded ? group.lanes.flatMap((lane) => lane.spans) : [],
      open: group.open,
      folded: isFolded,
      sum: `${many(group.lanes.length, "agent")}, ${busy} at work`,
      inGroup: false,
    };
    return isFolded ? [head] : [head, ...lanes];
  });
}
