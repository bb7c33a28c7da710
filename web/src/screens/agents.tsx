// Who has worked on what, and when: the claims of each agent on one axis of time, by agent, or in
// groups by session, user or track.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Activity } from "../api";
import { now, Problem, read } from "../client";
import { inProject } from "../dialogs";
import { clock, count, many, words } from "../format";
import { type Group, type Grouping, groupsOf, type Lane, rowsOf } from "../lanes";
import { onChange, whenLive } from "../live";
import { filter, place } from "../router";
import { Ago, Empty, Failed, type Look, Mark, Skeleton, TaskId } from "../ui";
import { spanLook, Timeline } from "./timeline";

const RANGES: [string, number][] = [
  ["5 m", 300],
  ["15 m", 900],
  ["1 h", 3600],
  ["6 h", 21_600],
  ["24 h", 86_400],
];
const GROUPINGS: [Grouping, string][] = [
  ["agent", "by agent"],
  ["session", "by session"],
  ["user", "by user"],
  ["track", "by track"],
];

export function AgentsScreen() {
  const { query } = place.value;
  const chosen = RANGES.find(([, length]) => String(length) === query.get("range"))?.[1] ?? 0;
  const seconds = chosen || MOST_BY_ITSELF;
  const [from, until] = ["from", "to"].map((name) => timeOf(query.get(name))) as [number, number];
  const fixed = until > 0;
  const told = useActivity(seconds, from, until, query.get("agent") ?? "");
  const by = GROUPINGS.find(([name]) => name === query.get("by"))?.[0] ?? "agent";
  const folds = query.get("fold") ?? "";
  const groups = useMemo(() => groupsOf(told.data?.spans ?? [], by), [told.data, by]);
  const lanes = groups.flatMap((group) => group.lanes);
  const agents = new Set(lanes.map((lane) => lane.name));
  const open = new Set(lanes.filter((lane) => lane.open).map((lane) => lane.name));
  const folded = useMemo(() => new Set(folds ? folds.split(",") : []), [folds]);
  const rows = useMemo(() => rowsOf(groups, folded), [groups, folded]);
  const fold = (names: string[]) => filter({ fold: names.join(",") || undefined });
  const turn = (name: string) =>
    fold(folded.has(name) ? [...folded].filter((each) => each !== name) : [...folded, name]);
  const end = fixed ? until : now.value;
  const start = fixed ? from : chosen ? end - seconds * 1000 : begun(told.data, end);
  const shift = (way: number) =>
    filter({
      from: String(Math.round(start + (way * (end - start)) / 2)),
      to: String(Math.round(end + (way * (end - start)) / 2)),
    });
  return (
    <section class="card" aria-labelledby="agents">
      <header>
        <h1 id="agents" style={{ font: "600 var(--t-13)" }}>
          Agents
        </h1>
        <small>
          {told.data && `${many(agents.size, "agent")}, ${open.size} at work`}
          {told.data && by !== "agent" && `, in ${many(groups.length, by)}`}
        </small>
      </header>
      <div class="filters">
        <div class="chips" role="group" aria-label="range of time">
          <button
            type="button"
            class="chip"
            aria-pressed={!fixed && !chosen}
            onClick={() => filter({ range: undefined, from: undefined, to: undefined })}
          >
            auto
          </button>
          {RANGES.map(([name, length]) => (
            <button
              key={name}
              type="button"
              class="chip"
              aria-pressed={!fixed && chosen === length}
              onClick={() => filter({ range: String(length), from: undefined, to: undefined })}
            >
              {name}
            </button>
          ))}
          <button type="button" class="chip" aria-label="earlier" onClick={() => shift(-1)}>
            ◀
          </button>
          <button
            type="button"
            class="chip"
            aria-label="later"
            disabled={!fixed}
            onClick={() => shift(1)}
          >
            ▶
          </button>
          {fixed && (
            <button
              type="button"
              class="chip"
              onClick={() => filter({ from: undefined, to: undefined })}
            >
              to now
            </button>
          )}
        </div>
        <span class="grow" />
        {query.get("agent") && (
          <button
            type="button"
            class="chip"
            aria-pressed="true"
            onClick={() => filter({ agent: undefined })}
          >
            agent <b>{query.get("agent")}</b> ×
          </button>
        )}
        <select
          class="field"
          aria-label="group the lines"
          value={by}
          onChange={(event) => {
            const chosen = event.currentTarget.value;
            filter({ by: chosen === "agent" ? undefined : chosen, fold: undefined });
          }}
        >
          {GROUPINGS.map(([name, words]) => (
            <option key={name} value={name}>
              {words}
            </option>
          ))}
        </select>
        {by !== "agent" && groups.length > 1 && (
          <button
            type="button"
            class="btn"
            onClick={() => fold(folded.size ? [] : groups.map((group) => group.key))}
          >
            {folded.size ? "Unfold all" : "Fold all"}
          </button>
        )}
      </div>
      {told.problem && <Failed problem={told.problem} />}
      {!told.data && !told.problem && <Skeleton lines={8} />}
      {told.data && lanes.length === 0 && (
        <Empty title="Nobody held a task in this time" type={inProject(["genlock", "agents"])}>
          Choose a longer range, or go back in time.
        </Empty>
      )}
      {rows.length > 0 && (
        <Timeline rows={rows} start={start} end={end} fixed={fixed} turn={turn} />
      )}
      {told.data && <Legend data={told.data} start={start} />}
      {told.data && lanes.length > 0 && <List groups={groups} />}
    </section>
  );
}

/** A time in the address, in milliseconds; 0 if it is none. */
function timeOf(text: string | null): number {
  return Number.isNaN(new Date(Number(text)).getTime()) ? 0 : Number(text);
}

const MOST_BY_ITSELF = 3600;
const LEAST_BY_ITSELF = 45;

/** Where the picture begins by itself: with the first claim of the last hour. */
function begun(data: Activity | undefined, end: number): number {
  const starts = (data?.spans ?? []).map((each) =>
    each.start === null ? 0 : Date.parse(each.start),
  );
  const first = starts.length ? Math.min(...starts) : end;
  return Math.max(
    end - MOST_BY_ITSELF * 1000,
    Math.min(first - 2000, end - LEAST_BY_ITSELF * 1000),
  );
}

/** What is kept of each agent's claims, read again while it changes. */
function useActivity(seconds: number, from: number, until: number, agent: string) {
  const [data, setData] = useState<Activity>();
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    let ended = false;
    let next = 0;
    let timer = 0;
    const load = async () => {
      const began = performance.now();
      try {
        const since = until ? from : now.peek() - seconds * 1000;
        const found = await read("get_activity", {
          since: new Date(since).toISOString(),
          until: until ? new Date(until).toISOString() : undefined,
          agent_id: agent || undefined,
        });
        if (ended) return;
        setData(found);
        setProblem(undefined);
      } catch (error) {
        if (!ended && error instanceof Problem) setProblem(error);
      }
      next = performance.now() + Math.max(1000, (performance.now() - began) * 8);
    };
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(load, Math.max(0, next - performance.now())) as unknown as number;
    };
    const stop = onChange((rows, routine) => (rows === null || !routine) && soon());
    void whenLive().then(() => (ended ? undefined : load()));
    return () => {
      ended = true;
      clearTimeout(timer);
      stop();
    };
  }, [seconds, from, until, agent, place.value.tenant, place.value.project]);
  return { data, problem };
}

const LEGEND: [Look, string, string][] = [
  ["done", "✓", "completed"],
  ["moving", "▶", "at work"],
  ["stuck", "×", "expired, lost or taken away"],
  ["blocked", "–", "given back"],
];

function Legend({ data, start }: { data: Activity; start: number }) {
  return (
    <p class="foot-note line">
      {LEGEND.map(([look, sign, name]) => (
        <span class={`st ${look}`} key={name}>
          <b>{sign}</b> {name}
        </span>
      ))}
      <span class="soft wide">drag to choose a time</span>
      {Date.parse(data.known_since) > start + 1000 && (
        <span>known since {clock(data.known_since, now.value)}</span>
      )}
      {data.left_out > 0 && <span>{count(data.left_out)} short ones are left out</span>}
    </p>
  );
}

/** The same in words: for those who do not see the picture, and for those who look something up. */
function List({ groups }: { groups: Group[] }) {
  return (
    <details class="line" style={{ padding: "8px 16px" }}>
      <summary class="soft" style={{ cursor: "pointer", font: "var(--t-12)" }}>
        As a list
      </summary>
      {groups.slice(0, 100).map((group) => (
        <section key={group.key} aria-label={group.label || "agents"}>
          {group.label && <h2 class="group">{group.label}</h2>}
          <ul>
            {group.lanes.slice(0, 100).map((lane) => (
              <Said key={lane.name} lane={lane} />
            ))}
          </ul>
        </section>
      ))}
    </details>
  );
}

function Said({ lane }: { lane: Lane }) {
  const last = lane.spans.findLast((each) => each.end === null) ?? lane.spans.at(-1)!;
  return (
    <li class="event" style={{ padding: "6px 0" }}>
      <Mark look={spanLook(last)} />
      <p>
        <b>{lane.name}</b> {last.end === null ? "works on" : `${words(last.ended ?? "ended")}:`}{" "}
        <TaskId id={last.task_id} /> gen {last.generation}; {many(lane.spans.length, "claim")} in
        this time
      </p>
      {last.start && <Ago at={last.end ?? last.start} />}
    </li>
  );
}
