// The four questions: who is on what, what is stuck and why, what is next, was a zombie refused?

import { useState } from "preact/hooks";
import type { ActName } from "../acts";
import {
  type EVENTS,
  type MinuteCounts,
  type Need,
  type Overview,
  type Refusal,
  type SessionCard,
  type Status,
  type TaskRow,
  type TrackCounts,
} from "../api";
import { anything, type Loaded, useRead } from "../data";
import { now } from "../client";
import { asked, inProject, reviewed } from "../dialogs";
import { count, local, many, size, span } from "../format";
import { place, to } from "../router";
import {
  Ago,
  Claim,
  Empty,
  Failed,
  Lease,
  lookOf,
  type Look,
  Mark,
  Skeleton,
  TaskId,
  wordOf,
} from "../ui";
import { compared } from "./compare";
import { EventLine, eventLook, toldOf } from "./history";
import { Table } from "./tasks";

/** The states in the order in which they are shown, a few of them together. */
const BAR: [Look, string, string[]][] = [
  ["done", "done", ["COMPLETED"]],
  ["moving", "working", ["IN_PROGRESS"]],
  ["stuck", "stuck", ["HELD", "IN_REVIEW"]],
  ["ready", "ready", ["PENDING"]],
  ["blocked", "blocked", ["BLOCKED", "BACKLOG", "CANCELLED"]],
];

export function OverviewScreen({ overview }: { overview: Loaded<Overview> }) {
  return (
    <>
      <h1 class="hidden">Overview of {place.value.project}</h1>
      <Known overview={overview} />
    </>
  );
}

function Known({ overview }: { overview: Loaded<Overview> }) {
  const told = overview.data.value;
  if (!told) {
    const problem = overview.error.value;
    return problem ? <Failed problem={problem} retry={overview.reload} /> : <Skeleton lines={9} />;
  }
  if (told.total === 0)
    return (
      <div class="card">
        <Empty
          title="There are no tasks yet"
          type={inProject(["genlock", "plan", "import", "plan.yaml"])}
        >
          Write a plan, import it, and let agents claim its tasks. This page shows them at work.
        </Empty>
      </div>
    );
  return (
    <div class={overview.error.value ? "old" : ""}>
      <Summary told={told} />
      <div class="grid">
        <div class="col">
          <Sessions told={told} />
        </div>
        <div class="col">
          <Next rows={told.next_up} told={told} />
          <Refusals refusals={told.refusals} />
          <Lately />
        </div>
        <div class="col">
          <Needs needs={told.needs} counts={told.needs_counts} />
          <Tracks tracks={told.tracks} />
        </div>
      </div>
      <Queue total={told.total} />
    </div>
  );
}

function Summary({ told }: { told: Overview }) {
  const { states, total, rates } = told;
  const of = (names: string[]) => names.reduce((sum, name) => sum + (states[name] ?? 0), 0);
  const over = of(["COMPLETED", "CANCELLED"]);
  const minutes = rates.completions > 0 ? (total - over) / rates.completions : 0;
  const share = Math.floor((over / total) * 100);
  return (
    <section class="sum" aria-label="all tasks by state">
      <div class="stack" role="img" aria-label={`${share}% of ${many(total, "task")} done`}>
        {BAR.filter(([, , names]) => of(names)).map(([look, word, names]) => (
          <i key={word} class={look} style={{ flex: of(names) }} />
        ))}
      </div>
      <div class="foot">
        <div class="chips">
          {BAR.map(([look, word, names]) => (
            <a
              key={word}
              class={`chip ${of(names) ? "" : "none"}`}
              href={to("tasks", "", { state: names.join(",") })}
            >
              <Mark look={look} />
              <b>{count(of(names))}</b> {word}
            </a>
          ))}
          <a
            class={`chip ${told.refused_results ? "" : "none"}`}
            href={to("history", "", { type: "RESULT_REJECTED" })}
          >
            <Mark look="refused" />
            <b>{count(told.refused_results)}</b> refused, kept
          </a>
        </div>
        <div class="rates">
          <span>
            <b>{share}%</b> of {count(total)}
          </span>
          <Spark minutes={rates.minutes} />
          <span>
            <b>{rates.claims}</b> claims/min
          </span>
          <span>
            <b>{rates.completions}</b> done/min
          </span>
          {minutes > 0 && <span>about {span(minutes * 60).split(" ")[0]} left</span>}
        </div>
      </div>
    </section>
  );
}

/** Claims and completed tasks of the last minutes. */
function Spark({ minutes }: { minutes: MinuteCounts[] }) {
  const most = Math.max(1, ...minutes.map((each) => Math.max(each.claims, each.completions)));
  const step = 96 / Math.max(minutes.length, 1);
  const said = minutes.map((each) => each.completions).join(", ");
  const bar = (at: number, n: number, fill: string) => (
    <rect
      x={at * step + 1}
      width={step - 2}
      y={21 - (n / most) * 20}
      height={(n / most) * 20 + 1}
      fill={fill}
      rx="1"
    />
  );
  return (
    <svg
      viewBox="0 0 96 22"
      role="img"
      aria-label={`tasks done in each of the last ${minutes.length} minutes: ${said}`}
    >
      {minutes.map((each, at) => (
        <g key={each.at}>
          {bar(at, each.claims, "var(--line)")}
          {bar(at, each.completions, "var(--soft)")}
        </g>
      ))}
    </svg>
  );
}

const MOST_CARDS = 8;

function Sessions({ told }: { told: Overview }) {
  const atWork = told.sessions.filter((card) => card.tasks.length > 0);
  const free = told.sessions.filter((card) => card.tasks.length === 0);
  const gone = free.filter((card) => card.process_gone);
  const idle = free.filter((card) => !card.process_gone);
  const shown = [...atWork, ...idle, ...gone].slice(0, MOST_CARDS);
  const others = [idle.length && `${idle.length} idle`, gone.length && `${gone.length} gone`];
  const more = told.sessions_count - shown.length;
  return (
    <section class="card o2" aria-labelledby="sessions">
      <header>
        <h2 id="sessions">At work</h2>
        <small>
          {told.sessions.length < told.sessions_count
            ? `${many(told.claims, "claim")}, ${many(told.sessions_count, "session")}`
            : [many(atWork.length, "session"), ...others.filter(Boolean)].join(", ")}
        </small>
        <a class="more" href={to("agents")}>
          timeline
        </a>
      </header>
      {shown.length === 0 ? (
        <Empty title="Nobody is at work" type={inProject(["genlock", "next", "--agent", "NAME"])}>
          An agent shows up here with its first claim.
        </Empty>
      ) : (
        <ul>
          {shown.map((card) => (
            <Session key={card.session_id} card={card} />
          ))}
        </ul>
      )}
      {more > 0 && (
        <p class="foot-note line">
          {many(more, "more session")} ·{" "}
          <a class="link" href={to("agents")}>
            all
          </a>
        </p>
      )}
    </section>
  );
}

function short(session: string): string {
  return session.length > 14 ? `${session.slice(0, 13)}…` : session;
}

function Session({ card }: { card: SessionCard }) {
  const task = card.tasks[0];
  const name = card.agent_id || card.user_id || card.session_id;
  const where = card.pid ? `, pid ${card.pid} on ${card.host}` : "";
  return (
    <li class="s">
      <span class="tag">{(card.agent_type || "agent").slice(0, 6).toUpperCase()}</span>
      <div class="row">
        <a class="who cut" href={to("tasks", "", { agent: name })}>
          <bdi>{name}</bdi>
        </a>
        <small class="mono cut faint" title={`session ${card.session_id}${where}`}>
          #{short(card.session_id)}
        </small>
        <Vitals card={card} />
      </div>
      {card.tasks.slice(0, 3).map((each) => (
        <Held key={each.task_id} task={each} phase={card.phase} />
      ))}
      {card.tasks_held > 3 && <div class="sub">and {many(card.tasks_held - 3, "more task")}</div>}
      {!task && (
        <div class="sub">
          <Claim health={card.process_gone ? "GONE" : card.active ? "AVAILABLE" : "SILENT"} />
          <span>
            last sign <Ago at={card.last_sign} />
          </span>
        </div>
      )}
    </li>
  );
}

function Vitals({ card }: { card: SessionCard }) {
  return (
    <span class="vitals">
      {card.score !== null && (
        <span title="score, as the agent reports it">
          score <b>{card.score}</b>
        </span>
      )}
      {card.context_percent !== null && (
        <span title="context used, as the agent reports it">
          ctx <b>{Math.round(card.context_percent)}%</b>
        </span>
      )}
      <span title={`tasks done by this session; last sign ${card.last_sign}`}>
        <b>{card.tasks_done}</b> done
      </span>
      {card.refused_results > 0 && (
        <span class="st refused" title="its refused results that are kept">
          <Mark look="refused" />
          {card.refused_results}
        </span>
      )}
    </span>
  );
}

function Held({ task, phase }: { task: SessionCard["tasks"][number]; phase: string }) {
  return (
    <>
      <div class="sub">
        <Claim health={task.health} why={task.why} />
        <TaskId id={task.task_id} />
        <span class="cut">{task.title !== task.task_id && task.title}</span>
        {phase && <span class="tag">{phase.toUpperCase()}</span>}
      </div>
      <div class="sub">
        <span class="num">gen {task.generation}</span>
        <Lease until={task.expires_at} seconds={task.lease_seconds} health={task.health} />
        {task.fraction !== null && <span class="num">{Math.round(task.fraction * 100)}%</span>}
      </div>
      {(task.why || task.note) && (
        <div class="sub">
          <span class={`cut ${task.why ? "st stuck" : ""}`}>
            {task.why ? local(task.why, now.value) : task.note}
          </span>
        </div>
      )}
    </>
  );
}

const MOST_NEEDS = 6;
const WORDS: Record<string, string> = { reopen: "Reopen…", release: "Release…", assign: "Assign…" };

function Needs({ needs, counts }: { needs: Need[]; counts: Record<string, number> }) {
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  const [open, setOpen] = useState(false);
  const shown = open ? needs : needs.slice(0, MOST_NEEDS);
  return (
    <section class="card o1" aria-labelledby="needs">
      <header>
        <h2 id="needs">Needs you</h2>
        <small>{all || ""}</small>
      </header>
      {needs.length === 0 ? (
        <div class="none-box">
          <span class="row">
            <Mark look="done" /> Nothing waits for a person.
          </span>
        </div>
      ) : (
        <ul>
          {shown.map((need) => (
            <NeedLine key={`${need.kind} ${need.task_id} ${need.refused_id}`} need={need} />
          ))}
        </ul>
      )}
      {all > MOST_NEEDS && (
        <p class="foot-note line">
          <button type="button" class="btn" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? `Only the first ${MOST_NEEDS}` : `Show ${count(needs.length - MOST_NEEDS)} more`}
          </button>
          {all > needs.length && (
            <span>
              {count(all)} in all:{" "}
              <a class="link" href={to("tasks", "", { state: "HELD,IN_REVIEW" })}>
                held or in review
              </a>
            </span>
          )}
        </p>
      )}
    </section>
  );
}

function NeedLine({ need }: { need: Need }) {
  const refused = need.kind === "REFUSED_RESULT";
  const review = need.kind === "IN_REVIEW";
  const act = need.acts[0] as ActName | undefined;
  const ask = () => {
    if (review) reviewed.value = need.task_id;
    else if (refused) compared.value = { taskId: need.task_id, refusedId: need.refused_id! };
    else if (act) asked.value = { act, taskId: need.task_id };
  };
  const who = need.agent_id ? `${need.agent_id}, gen ${need.generation} · ` : "";
  return (
    <li class={`need ${refused ? "refused" : "stuck"}`}>
      <Mark look={refused ? "refused" : "stuck"} shape={review ? "half" : undefined} />
      <p>
        <TaskId id={need.task_id} />{" "}
        {local(
          need.why.startsWith(need.task_id) ? need.why.slice(need.task_id.length) : need.why,
          now.value,
        )}
      </p>
      <small>
        {who}
        {need.size !== null && `${size(need.size)}${refused ? " kept" : ""} · `}
        {need.waited_for_by > 0 &&
          `${many(need.waited_for_by, "task waits", "tasks wait")} for it · `}
        <Ago at={need.since} />
      </small>
      {refused || review || (act && act in WORDS) ? (
        <button type="button" class="btn" onClick={ask}>
          {refused ? "Compare…" : review ? "Review…" : WORDS[act!]}
          <span class="hidden"> {need.task_id}</span>
        </button>
      ) : (
        <a class="btn" href={to("task", need.task_id)}>
          Open<span class="hidden"> {need.task_id}</span>
        </a>
      )}
    </li>
  );
}

const MOST_NEXT = 8;

function Next({ rows, told }: { rows: TaskRow[]; told: Overview }) {
  const ready = told.states.PENDING ?? 0;
  return (
    <section class="card o3" aria-labelledby="next">
      <header>
        <h2 id="next">Next</h2>
        <small>{ready ? `${count(ready)} ready, first things first` : ""}</small>
        <a class="more" href={to("tasks", "", { state: "PENDING" })}>
          all
        </a>
      </header>
      {rows.length === 0 ? (
        <div class="none-box">{nothingNext(told)}</div>
      ) : (
        <ol>
          {rows.slice(0, MOST_NEXT).map((row, at) => (
            <li class="next" key={row.id}>
              <span class="n">{at + 1}</span>
              <TaskId id={row.id} />
              <span class="cut soft">{row.title !== row.id && row.title}</span>
              <span class="row">
                {row.assigned_to ? (
                  <small>for {row.assigned_to}</small>
                ) : (
                  row.priority !== "medium" && <span class="tag">{row.priority.toUpperCase()}</span>
                )}
                <Claim health="AVAILABLE" />
              </span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

function nothingNext({ states, total }: Overview): string {
  const over = (states.COMPLETED ?? 0) + (states.CANCELLED ?? 0);
  if (over === total) return "Everything is done.";
  if (states.IN_PROGRESS) return "Nothing is ready: what is left waits for what is at work.";
  return "Nothing is ready, and nobody is at work: see what needs you.";
}

const CELLS = 28;
const OPEN: Status[] = ["HELD", "IN_REVIEW", "IN_PROGRESS", "PENDING", "BLOCKED", "BACKLOG"];
const ORDER = [
  "COMPLETED",
  "CANCELLED",
  "IN_PROGRESS",
  "IN_REVIEW",
  "HELD",
  "PENDING",
  "BACKLOG",
  "BLOCKED",
];

function Tracks({ tracks }: { tracks: TrackCounts[] }) {
  if (tracks.length === 0) return null;
  return (
    <section class="card o4" aria-labelledby="tracks">
      <header>
        <h2 id="tracks">Tracks</h2>
        <small>{tracks.length}</small>
        <a class="more" href={to("graph")}>
          graph
        </a>
      </header>
      <ul>
        {tracks.map((track) => (
          <Track key={track.track} track={track} />
        ))}
      </ul>
    </section>
  );
}

function Track({ track }: { track: TrackCounts }) {
  const parts = ORDER.map((state) => [state, track.states[state] ?? 0] as const).filter(
    ([, n]) => n,
  );
  const said = parts.map(([state, n]) => `${n} ${wordOf(state)}`).join(", ");
  const few = track.total <= CELLS;
  const who = track.agents.slice(0, 6).join(", ");
  return (
    <li>
      <a class="tr" href={track.track ? to("tasks", "", { track: track.track }) : to("tasks")}>
        <b class="cut">{track.track || "–"}</b>
        <span class={`cells ${few ? "" : "many"}`} role="img" aria-label={said} title={said}>
          {few
            ? parts.flatMap(([state, n]) =>
                Array.from({ length: n }, (_, at) => (
                  <i key={`${state}${at}`} class={lookOf(state)} />
                )),
              )
            : parts.map(([state, n]) => (
                <i key={state} class={lookOf(state)} style={{ "--n": String(n) }} />
              ))}
        </span>
        <span class="num">
          {count(track.states.COMPLETED ?? 0)}/{count(track.total)}
        </span>
        {(who || track.purpose) && (
          <small class="cut">
            {who}
            {who && track.purpose && " · "}
            {track.purpose}
          </small>
        )}
      </a>
    </li>
  );
}

const MOST_REFUSALS = 4;

function Refusals({ refusals }: { refusals: Refusal[] }) {
  return (
    <section class="card o5" aria-labelledby="refusals">
      <header>
        <h2 id="refusals">Zombies refused</h2>
        {refusals[0] && (
          <small>
            the last <Ago at={refusals[0].at} />
          </small>
        )}
        <a class="more" href={to("history", "", { type: "RESULT_REJECTED" })}>
          history
        </a>
      </header>
      {refusals.length === 0 ? (
        <div class="none-box">
          None so far: nobody has handed in a result under a claim that was over.
        </div>
      ) : (
        <ul>
          {refusals.slice(0, MOST_REFUSALS).map((each) => (
            <li class="event" key={each.refused_id}>
              <Mark look="refused" />
              <p>
                <TaskId id={each.task_id} /> gen {each.generation} by{" "}
                {each.agent_id || each.session_id}; it was at {each.current_generation} by then
                {each.state !== "KEPT" && <span class="soft"> · {each.state.toLowerCase()}</span>}
              </p>
              <Ago at={each.at} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

const MOST_QUEUED = 10;

/** What moves and what could, as a table; on a phone the tasks have a screen of their own. */
function Queue({ total }: { total: number }) {
  const page = useRead(
    "list_tasks",
    { sort: "state", limit: MOST_QUEUED, states: OPEN },
    { concerns: anything, pause: 1000 },
  );
  const rows = page.data.value?.tasks ?? [];
  if (rows.length === 0) return null;
  return (
    <section class="card wide" aria-labelledby="queue" style={{ marginTop: "16px" }}>
      <header>
        <h2 id="queue">Queue</h2>
        <small>what needs somebody first</small>
        <a class="more" href={to("tasks")}>
          all {count(total)}
        </a>
      </header>
      <Table rows={rows} />
    </section>
  );
}

const MOST_LATELY = 8;
/** What tells how the work goes, without what follows from it. */
const TOLD: (typeof EVENTS)[number][] = [
  "CLAIM_ACQUIRED",
  "CLAIM_RELEASED",
  "CLAIM_EXPIRED",
  "CLAIM_ORPHANED",
  "CLAIM_SUPERSEDED",
  "RESULT_ACCEPTED",
  "RESULT_REJECTED",
  "RESULT_ADOPTED",
  "CONVERGENCE_ESCALATED",
  "REVIEW_REJECTED",
  "TASK_HELD",
  "TASK_REOPENED",
  "TASK_RESET",
  "TASK_CANCELLED",
  "TASK_ASSIGNED",
  "SUBTASKS_SPAWNED",
];

function Lately() {
  const page = useRead(
    "search_events",
    { types: TOLD, limit: MOST_LATELY },
    { concerns: anything, pause: 1500 },
  );
  const events = toldOf(page.data.value);
  if (events.length === 0) return null;
  return (
    <section class="card o5" aria-labelledby="lately">
      <header>
        <h2 id="lately">Lately</h2>
        <a class="more" href={to("history")}>
          history
        </a>
      </header>
      <ul>
        {events.map(({ event, says }) => (
          <li class="event" key={event.position}>
            <Mark look={eventLook(event.event_type)} />
            <EventLine event={event} says={says} />
            <Ago at={String(event.event.timestamp)} />
          </li>
        ))}
      </ul>
    </section>
  );
}
