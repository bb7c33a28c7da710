// All tasks, in pages of the service: filters live in the address, rows change in place.

import { type Signal, useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { TaskPage, TaskRow } from "../api";
import { acting } from "../bulk";
import { Problem, read } from "../client";
import { inProject, say } from "../dialogs";
import { count, many } from "../format";
import { onChange, whenLive } from "../live";
import { filter, go, place, to } from "../router";
import type { Rows } from "../rows";
import {
  Claim,
  Empty,
  Failed,
  Left,
  lookOf,
  Mark,
  Skeleton,
  Sought,
  State,
  STATES,
  wordOf,
} from "../ui";

const PAGE = 200;
const KEPT = 1000;
/** Rows are added and taken away so many at a time: between, scrolling renders nothing. */
const STEP = 6;
const OVERSCAN = 2;
const GROUPS = [
  "IN_PROGRESS",
  "HELD",
  "PENDING",
  "BLOCKED",
  "COMPLETED",
  "IN_REVIEW",
  "BACKLOG",
  "CANCELLED",
];
const SORTS: [string, string][] = [
  ["order", "first things first"],
  ["state", "what needs somebody first"],
  ["priority", "priority"],
  ["updated", "changed last"],
  ["id", "id"],
];

interface Line {
  row: TaskRow;
  /** It changed, and no longer fits the filters: it stays until one takes in what has changed. */
  gone?: boolean;
  changed: number;
}

export function TasksScreen() {
  const { query } = place.value;
  const get = (name: string) => query.get(name) ?? "";
  const states = get("state")
    .split(",")
    .filter((name) => STATES.includes(name));
  const given = {
    states: states.length ? states : undefined,
    tracks: get("track") ? [get("track")] : undefined,
    agent_id: get("agent") || undefined,
    session_id: get("session") || undefined,
    tag: get("tag") || undefined,
    text: get("q") || undefined,
    sort: get("sort") || "order",
  };
  const key = JSON.stringify([given, place.value.tenant, place.value.project]);
  return <List key={key} given={given} />;
}

type Given = Record<string, unknown>;

function List({ given }: { given: Given }) {
  const lines = useSignal<Line[]>([]);
  const head = useSignal<TaskPage | null>(null);
  const next = useSignal<string | null>(null);
  const problem = useSignal<Problem | undefined>(undefined);
  const newer = useSignal(0);
  const chosen = useSignal<ReadonlySet<string>>(new Set());
  const loaded = useComputed(() => lines.value.length);
  const some = useComputed(() => lines.value.length > 0);
  const busy = useRef(false);
  const load = async (after?: string) => {
    if (busy.current) return;
    busy.current = true;
    try {
      const page = await read("list_tasks", { ...given, limit: PAGE, after } as never);
      const fresh = page.tasks.map((row) => ({ row, changed: 0 }));
      lines.value = after ? [...lines.value, ...fresh].slice(0, KEPT) : fresh;
      next.value = lines.value.length >= KEPT ? null : page.next;
      head.value = page;
      problem.value = undefined;
      if (!after) newer.value = 0;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    } finally {
      busy.current = false;
    }
  };
  useEffect(() => {
    let counting = 0;
    const recount = () => {
      clearTimeout(counting);
      counting = setTimeout(async () => {
        try {
          const page = await read("list_tasks", { ...given, limit: 1 } as never);
          if (head.value) head.value = { ...head.value, counts: page.counts, total: page.total };
        } catch {
          // The connection says so already.
        }
      }, 1000) as unknown as number;
    };
    const change = (rows: Rows | null) => {
      if (rows === null) return void load();
      recount();
      patch(lines, rows, given, newer);
    };
    const stop = onChange(change);
    const take = () => void load();
    addEventListener("take-in", take);
    void whenLive().then(() => load());
    return () => {
      stop();
      clearTimeout(counting);
      removeEventListener("take-in", take);
    };
  }, []);
  return (
    <section class="card" aria-labelledby="tasks">
      <header>
        <h1 id="tasks" style={{ font: "600 var(--t-13)" }}>
          Tasks
        </h1>
        <small>{head.value ? `${count(head.value.total)} match` : ""}</small>
        <Newer newer={newer} load={() => load()} />
        <Choice chosen={chosen} given={given} total={head.value?.total ?? 0} />
      </header>
      <Filters counts={head.value?.counts} />
      {problem.value && <Failed problem={problem.value} retry={() => load()} />}
      {!head.value && !problem.value && <Skeleton lines={12} />}
      {head.value && !some.value && (
        <Empty title="No task matches" type={inProject(["genlock", "status"])}>
          Take a filter out, or look at all states.
        </Empty>
      )}
      {some.value && (
        <Window
          lines={lines}
          chosen={chosen}
          all={() =>
            isFiltered(given)
              ? (acting.value = { given, ids: [] })
              : say("Filter the list first, or choose tasks with x.", "stuck")
          }
          more={() => next.value && load(next.value)}
        />
      )}
      {head.value && (
        <p class="foot-note">
          {count(loaded.value)} of {count(head.value.total)} loaded
          {loaded.value >= KEPT && " · narrow the filters to see others"}
        </p>
      )}
    </section>
  );
}

/** No act is for a whole project by mistake. */
function isFiltered({ sort: _, ...filters }: Given): boolean {
  return Object.values(filters).some((value) => value !== undefined);
}

/** What is chosen is acted on; if nothing is, all that match. */
function Choice({
  chosen,
  given,
  total,
}: {
  chosen: Signal<ReadonlySet<string>>;
  given: Given;
  total: number;
}) {
  const { size } = chosen.value;
  if (total === 0 || (size === 0 && !isFiltered(given))) return null;
  return (
    <span class="row" style={{ marginLeft: "auto" }}>
      {size > 0 && (
        <button type="button" class="btn" onClick={() => (chosen.value = new Set())}>
          Choose none
        </button>
      )}
      <button
        type="button"
        class="btn"
        onClick={() => (acting.value = { given, ids: [...chosen.value] })}
      >
        {size ? `Act on ${count(size)}…` : `Act on all ${count(total)}…`}
      </button>
    </span>
  );
}

function Newer({ newer, load }: { newer: Signal<number>; load: () => void }) {
  if (newer.value === 0) return null;
  return (
    <button type="button" class="btn" onClick={load}>
      {many(newer.value, "change")} · take in <kbd>r</kbd>
    </button>
  );
}

/** Shows what changed on the rows that are there. Others wait until one takes them in: a list under
 * somebody's eyes does not jump. */
function patch(lines: { value: Line[] }, rows: Rows, given: Given, newer: { value: number }): void {
  const states = given.states as string[] | undefined;
  const seen = new Set<string>();
  const next = lines.value.map((line) => {
    const row = rows.get(line.row.id);
    if (!row) return line;
    seen.add(row.id);
    const same = row.state === line.row.state && row.generation === line.row.generation;
    const gone = states !== undefined && !states.includes(row.state);
    return { row, gone, changed: same ? line.changed : Date.now() };
  });
  if (seen.size) lines.value = next;
  const fits = [...rows.values()].filter(
    (row) =>
      row !== null && !seen.has(row.id) && (states === undefined || states.includes(row.state)),
  );
  newer.value += fits.length;
}

function Filters({ counts }: { counts: Record<string, number> | undefined }) {
  const { query } = place.value;
  const chosen = (query.get("state") ?? "").split(",").filter(Boolean);
  const toggle = (name: string) => {
    const next = chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name];
    filter({ state: next.join(",") || undefined });
  };
  return (
    <div class="filters">
      <div class="chips" role="group" aria-label="states">
        {GROUPS.filter((name) => chosen.includes(name) || (counts?.[name] ?? 0) > 0 || !counts).map(
          (name) => (
            <button
              key={name}
              type="button"
              class="chip"
              aria-pressed={chosen.includes(name)}
              onClick={() => toggle(name)}
            >
              <Mark look={lookOf(name)} />
              <b>{counts ? count(counts[name] ?? 0) : ""}</b> {wordOf(name)}
            </button>
          ),
        )}
      </div>
      <span class="grow" />
      {["track", "agent", "session", "tag"].map((name) => {
        const value = query.get(name);
        return (
          value && (
            <button
              key={name}
              type="button"
              class="chip"
              aria-pressed="true"
              onClick={() => filter({ [name]: undefined })}
            >
              {name} <b>{value}</b> <span aria-hidden="true">×</span>
              <span class="hidden">: take this filter out</span>
            </button>
          )
        );
      })}
      <Sought
        value={query.get("q") ?? ""}
        name="text in id, title, tags or description"
        hint="text in id, title, tags…"
        seek={(text) => filter({ q: text })}
      />
      <select
        class="field"
        aria-label="order"
        value={query.get("sort") ?? "order"}
        onChange={(event) =>
          filter({
            sort: event.currentTarget.value === "order" ? undefined : event.currentTarget.value,
          })
        }
      >
        {SORTS.map(([value, words]) => (
          <option key={value} value={value}>
            {words}
          </option>
        ))}
      </select>
    </div>
  );
}

const WIDE =
  "minmax(140px, 1.2fr) minmax(120px, 2fr) 70px 92px 110px minmax(80px, 1fr) 44px 64px minmax(80px, 1.2fr)";
const NARROW = "minmax(90px, 1.4fr) 92px 64px";

/** Only the rows that can be seen are in the page. */
function Window({
  lines: told,
  chosen,
  all,
  more,
}: {
  lines: Signal<Line[]>;
  chosen: Signal<ReadonlySet<string>>;
  all: () => void;
  more: () => void;
}) {
  const lines = told.value;
  const last = useRef(-1);
  const choose = (index: number, through: boolean) => {
    const [first, end] =
      through && last.current >= 0
        ? [Math.min(last.current, index), Math.max(last.current, index)]
        : [index, index];
    const ids = lines.slice(first, end + 1).map((line) => line.row.id);
    const next = new Set(chosen.value);
    const add = through || !next.has(ids[0]!);
    for (const id of ids) {
      if (add) next.add(id);
      else next.delete(id);
    }
    chosen.value = next;
    last.current = index;
  };
  const box = useRef<HTMLDivElement>(null);
  const [from, setFrom] = useState(0);
  const [tall, setTall] = useState(600);
  const [at, show] = useState(-1);
  // Keys come faster than renders.
  const here = useRef(-1);
  const setAt = (next: number) => show((here.current = next));
  const narrow = useNarrow();
  const height = narrow ? 44 : 32;
  const drawn = useRef(new WeakMap<Line, { key: string; node: ComponentChildren }>());
  /** Preact leaves out what is the same node as before: most rows, most of the time. */
  const rowOf = (line: Line, index: number) => {
    const top = index * height;
    const isHere = at === index;
    const picked = chosen.value.has(line.row.id);
    const key = `${top} ${isHere} ${picked} ${narrow} ${lines.length}`;
    const known = drawn.current.get(line);
    if (known?.key === key) return known.node;
    const node = (
      <RowLine
        key={line.row.id}
        line={line}
        top={top}
        chosen={isHere}
        narrow={narrow}
        picked={picked}
        pick={(through) => choose(index, through)}
      />
    );
    drawn.current.set(line, { key, node });
    return node;
  };
  useEffect(() => {
    const fit = () => setTall(box.current?.clientHeight ?? 600);
    fit();
    addEventListener("resize", fit);
    return () => removeEventListener("resize", fit);
  }, []);
  useEffect(() => {
    const key = (event: Event) => {
      const { detail } = event as CustomEvent<string>;
      const at = here.current;
      if (detail === "open" && at >= 0 && at < lines.length) go(to("task", lines[at]!.row.id));
      if (detail === "all") all();
      if (at >= 0 && (detail === "choose" || detail === "through"))
        choose(at, detail === "through");
      const step = detail === "next" ? 1 : detail === "previous" ? -1 : 0;
      if (!step) return;
      const next = Math.max(0, Math.min(lines.length - 1, at + step));
      setAt(next);
      const node = box.current!;
      if (next * height < node.scrollTop) node.scrollTop = next * height;
      else if ((next + 1) * height > node.scrollTop + tall)
        node.scrollTop = (next + 1) * height - tall;
    };
    addEventListener("step", key);
    return () => removeEventListener("step", key);
  }, [lines, tall, height]);
  const first = Math.max(0, from - OVERSCAN);
  const end = Math.min(lines.length, from + Math.ceil(tall / height) + STEP + OVERSCAN);
  useEffect(() => {
    if (end > lines.length * 0.6) more();
  }, [end, lines.length]);
  return (
    <div
      class="table"
      role="table"
      aria-rowcount={lines.length}
      aria-label="tasks"
      style={{ "--cols": narrow ? NARROW : WIDE }}
    >
      <Head narrow={narrow} />
      <div
        class="window"
        ref={box}
        tabIndex={0}
        role="rowgroup"
        aria-label="tasks"
        style={{
          height: `${Math.min(lines.length * height, Math.max(320, innerHeight - (narrow ? 300 : 260)))}px`,
        }}
        onScroll={(event) =>
          setFrom(Math.floor(event.currentTarget.scrollTop / height / STEP) * STEP)
        }
      >
        <div style={{ height: `${lines.length * height}px` }}>
          {lines.slice(first, end).map((line, index) => rowOf(line, first + index))}
        </div>
      </div>
    </div>
  );
}

const NAMES = ["Task", "Title", "Priority", "State", "Claim", "By", "Gen", "Lease", "Waits for"];

function Head({ narrow }: { narrow: boolean }) {
  return (
    <div class="tr-head" role="row">
      {(narrow ? ["Task", "State", "Lease"] : NAMES).map((name) => (
        <span
          key={name}
          role="columnheader"
          class={name === "Gen" || name === "Lease" ? "num" : ""}
        >
          {name}
        </span>
      ))}
    </div>
  );
}

/** A few rows, all of them in the page. */
export function Table({ rows }: { rows: TaskRow[] }) {
  return (
    <div class="table" role="table" aria-label="tasks" style={{ "--cols": WIDE }}>
      <Head narrow={false} />
      <div role="rowgroup">
        {rows.map((row) => (
          <RowLine key={row.id} line={{ row, changed: 0 }} />
        ))}
      </div>
    </div>
  );
}

interface RowGiven {
  line: Line;
  top?: number;
  chosen?: boolean;
  narrow?: boolean;
  picked?: boolean;
  pick?: (through: boolean) => void;
}

function RowLine({ line, top, chosen, narrow, picked, pick }: RowGiven) {
  const { row } = line;
  const lease = row.holder ? <Left until={row.holder.expires_at} /> : "–";
  const flash = Date.now() - line.changed < 300 ? "flash" : "";
  return (
    <div
      class={`tr-row ${chosen ? "sel" : ""} ${line.gone ? "gone" : ""} ${flash}`}
      role="row"
      style={top === undefined ? {} : { transform: `translateY(${top}px)` }}
      aria-selected={chosen}
      onDblClick={() => go(to("task", row.id))}
    >
      <span role="cell">
        {pick && (
          <input
            type="checkbox"
            checked={picked}
            aria-label={`choose ${row.id}`}
            onClick={(event) => {
              event.stopPropagation();
              pick(event.shiftKey);
            }}
          />
        )}{" "}
        <a class="id" href={to("task", row.id)}>
          <bdi>{row.id}</bdi>
        </a>
      </span>
      {!narrow && (
        <>
          <span role="cell" class="soft" title={row.title}>
            {row.title !== row.id && row.title}
          </span>
          <span role="cell" class="soft">
            {row.priority}
          </span>
        </>
      )}
      <span role="cell">
        <State state={row.state} />
      </span>
      {!narrow && (
        <>
          <span role="cell">
            {row.holder ? (
              <Claim health={row.holder.health} why={row.holder.why} />
            ) : row.state === "PENDING" ? (
              <Claim health="AVAILABLE" />
            ) : (
              "–"
            )}
          </span>
          <span role="cell">
            <bdi>
              {row.holder?.agent_id ??
                row.done_by ??
                (row.assigned_to ? `for ${row.assigned_to}` : "–")}
            </bdi>
          </span>
          <span role="cell" class="num">
            {row.generation || "–"}
          </span>
        </>
      )}
      <span role="cell" class="num">
        {lease}
      </span>
      {!narrow && (
        <span role="cell" class="mono soft" title={row.hold_reason ?? row.waits_for.join(", ")}>
          {row.hold_reason ??
            (row.waits_for.length
              ? `${row.waits_for.join(", ")}${row.waits_for_count > row.waits_for.length ? ` +${row.waits_for_count - row.waits_for.length}` : ""}`
              : "–")}
        </span>
      )}
    </div>
  );
}

const media = matchMedia("(max-width: 900px)");

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(media.matches);
  useEffect(() => {
    const change = () => setNarrow(media.matches);
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, []);
  return narrow;
}
