// A task's story: why it stands as it does, its generations, its results, what it waits for.

import { ACTS, actsFor } from "../acts";
import type {
  ClaimHistory,
  Explanation,
  Graph,
  Lineage,
  ReviewInfo,
  TaskResult,
  TaskState,
} from "../api";
import { now } from "../client";
import { useRead } from "../data";
import { asked, inProject } from "../dialogs";
import { ago, clock, local, many, size, span, whole, words } from "../format";
import type { Rows } from "../rows";
import { place, to } from "../router";
import { Ago, At, Claim, Empty, Failed, Lease, Mark, Skeleton, State, TaskId, Typed } from "../ui";
import { compared, useResultText } from "./compare";
import { EventLine, eventLook, toldOf } from "./history";
import { Author, Decide, Waiting } from "./review";
import { Problem } from "../client";

export function TaskScreen() {
  const id = place.value.subject;
  const concerns = (rows: Rows) => rows.has(id);
  const about = { task_id: id };
  const task = useRead("get_task_state", about, { concerns });
  const state = task.data.value;
  if (!state) {
    const problem = task.error.value;
    if (problem?.status === 404)
      return (
        <div class="card">
          <h1 class="hidden">{id}</h1>
          <Empty title={`There is no task ${id} here`} type={inProject(["genlock", "add", id])}>
            It may be one of another project, or was never added.
          </Empty>
        </div>
      );
    return problem ? <Failed problem={problem} retry={task.reload} /> : <Skeleton lines={8} />;
  }
  return <Story key={id} id={id} state={state} stale={task.error.value !== undefined} />;
}

function Story({ id, state, stale }: { id: string; state: TaskState; stale: boolean }) {
  const about = { task_id: id };
  const concerns = (rows: Rows) => rows.has(id);
  const near = [
    ...state.unmet_dependencies,
    ...(state.task.depends_on ?? []),
    ...state.spawned_tasks,
  ];
  const around = (rows: Rows) => rows.has(id) || near.some((each) => rows.has(each));
  const waits = state.state === "IN_REVIEW";
  const review = useRead("get_review", about, { concerns, when: waits });
  const looked = waits ? review.data.value : undefined;
  const lineage = useRead("get_lineage", about, { concerns });
  const explained = useRead("explain", about, { concerns: around, every: 30_000 });
  const graph = useRead("get_graph", { around: id, depth: 1 }, { concerns: around, pause: 1500 });
  return (
    <div class={stale ? "old" : ""}>
      <Hero state={state} explained={explained.data.value} review={looked} />
      <div class="task">
        <div class="col">
          <Generations lineage={lineage.data.value} problem={lineage.error.value} state={state} />
          {waits && <Review review={looked} problem={review.error.value} />}
          <Results state={state} lineage={lineage.data.value} />
          <Events id={id} />
        </div>
        <div class="col">
          <Near id={id} graph={graph.data.value} state={state} />
          <Terminal state={state} />
          <Definition state={state} />
        </div>
      </div>
    </div>
  );
}

function Hero({
  state,
  explained,
  review,
}: {
  state: TaskState;
  explained: Explanation | undefined;
  review: ReviewInfo | undefined;
}) {
  const { task, claim, holder } = state;
  return (
    <section class="card hero">
      <div class="crumbs">
        <a class="link soft" href={to("tasks")}>
          Tasks
        </a>
        <span class="mono">
          <b>
            <bdi>{task.id}</bdi>
          </b>
        </span>
        <State state={state.state} big />
        <span class="num soft">gen {state.generation}</span>
        {task.track && <span class="tag">TRACK {task.track}</span>}
        <span class="tag">{(task.priority ?? "medium").toUpperCase()}</span>
        {state.refused_results > 0 && (
          <span class="st refused">
            <Mark look="refused" />
            {many(state.refused_results, "refused result")} kept
          </span>
        )}
        <div class="acts">
          {actsFor(state).map((name) => (
            <button
              key={name}
              type="button"
              class="btn"
              onClick={() => (asked.value = { act: name, taskId: task.id, review })}
            >
              {ACTS[name].label}…
            </button>
          ))}
          <a class="btn" href={to("graph", "", { around: task.id })}>
            Graph
          </a>
        </div>
      </div>
      <h1 style={{ margin: "8px 0 4px" }}>{task.title || task.id}</h1>
      {claim && holder && (
        <p class="claim">
          <Claim health={holder.looks_alive ? "WORKING" : "OVERDUE"} />
          <span>
            <b>{holder.agent}</b> holds it at generation {claim.generation}, since{" "}
            <At at={claim.claimed_at} />
          </span>
          <Lease
            until={claim.expires_at}
            seconds={claim.lease_seconds}
            health={holder.looks_alive ? "WORKING" : "OVERDUE"}
            full
          />
        </p>
      )}
      {explained && state.state !== "COMPLETED" && explained.because.length > 0 && (
        <p class="why">Why: {local(explained.because.join("; "), now.value)}.</p>
      )}
      {explained && explained.roots.length > 0 && (
        <p class="why">
          It comes down to{" "}
          {explained.roots.map((root, at) => (
            <>
              {at > 0 && ", "}
              <TaskId key={root.task_id} id={root.task_id} /> ({local(root.because, now.value)})
            </>
          ))}
          .
        </p>
      )}
      {state.feedback && state.state !== "COMPLETED" && (
        <p class="why">
          The result of generation {state.feedback.generation} was rejected by {state.feedback.by}
          {state.feedback.text && <>: “{state.feedback.text}”</>}, <Ago at={state.feedback.at} />.
        </p>
      )}
      {state.inputs_changed.length > 0 && (
        <p class="why st stuck">
          <Mark look="stuck" /> Made from older inputs: {state.inputs_changed.join(", ")} changed
          since.
        </p>
      )}
      {state.progress && state.claim && <Reported state={state} />}
    </section>
  );
}

function Reported({ state }: { state: TaskState }) {
  const { fraction, notes, updated_at, cost } = state.progress!;
  const note = notes.at(-1);
  const costs = Object.entries(cost).map(([unit, n]) => `${n} ${unit}`);
  return (
    <p class="why">
      {fraction !== null && `${Math.round(fraction * 100)}% done · `}
      {note && `“${note.text}” · `}
      {costs.length > 0 && `${costs.join(", ")} · `}
      <Ago at={updated_at} />
    </p>
  );
}

const ENDS: Record<string, string> = {
  COMPLETED: "its result was accepted",
  EXPIRED: "its lease ran out",
  ORPHANED: "its process or session was gone",
  SUPERSEDED: "an operator took it away",
  VOLUNTARY: "it was given back",
  ERROR: "it was given back after an error",
};

function Generations({
  lineage,
  problem,
  state,
}: {
  lineage: Lineage | undefined;
  problem: Problem | undefined;
  state: TaskState;
}) {
  const all = lineage?.generations ?? [];
  return (
    <section class="card" aria-labelledby="generations">
      <header>
        <h2 id="generations">Generations</h2>
        <small>{all.length || ""}</small>
      </header>
      {!lineage && (problem ? <Failed problem={problem} /> : <Skeleton />)}
      {lineage && all.length === 0 && <div class="none-box">Nobody has claimed it yet.</div>}
      {lineage && all.length > 0 && <Lanes all={all} refused={lineage.refused} state={state} />}
    </section>
  );
}

const MOST_LANES = 12;

function Lanes({
  all,
  refused,
  state,
}: {
  all: ClaimHistory[];
  refused: TaskResult[];
  state: TaskState;
}) {
  const shown = all.slice(-MOST_LANES);
  const end = (each: ClaimHistory) => (each.released_at ? Date.parse(each.released_at) : now.value);
  const start = Date.parse(shown[0]!.acquired_at);
  const last = Math.max(
    ...shown.map(end),
    ...refused.map((each) => Date.parse(each.submitted_at)),
    start + 1000,
  );
  const at = (time: number) => `${(Math.max(0, time - start) / (last - start)) * 100}%`;
  return (
    <>
      <ol class="lanes">
        {shown.map((each) => {
          const open = each.released_at === null;
          const late = refused.filter((one) => one.generation === each.generation);
          const reviewed = each.release_reason === "COMPLETED" && !each.result_accepted;
          const waits = reviewed && state.review?.generation === each.generation;
          const ended = waits
            ? "its result waits for a review"
            : reviewed
              ? "its result was rejected in a review"
              : (ENDS[each.release_reason ?? ""] ?? words(each.release_reason ?? "it ended"));
          const look = each.result_accepted
            ? "done"
            : open
              ? state.holder?.looks_alive
                ? "moving"
                : "stuck"
              : waits
                ? "stuck"
                : "blocked";
          return (
            <li class="lane" key={each.id}>
              <span class="g-no">g{each.generation}</span>
              <span class="cut" title={`session ${each.session_id}`}>
                <bdi>{each.agent_id || each.session_id}</bdi>
              </span>
              <span
                class="track"
                role="img"
                aria-label={`from ${whole(each.acquired_at)} for ${span((end(each) - Date.parse(each.acquired_at)) / 1000)}`}
              >
                <span
                  class={`span ${look} ${open ? "open" : ""}`}
                  style={{
                    left: at(Date.parse(each.acquired_at)),
                    width: `calc(${at(end(each))} - ${at(Date.parse(each.acquired_at))})`,
                  }}
                />
                {late.map((one) => (
                  <span
                    key={one.id}
                    class="hit refused"
                    style={{
                      left: `clamp(8px, ${at(Date.parse(one.submitted_at))}, calc(100% - 8px))`,
                    }}
                    title="a result was refused"
                  >
                    <Mark look="refused" />
                  </span>
                ))}
              </span>
              <small>
                {open
                  ? `at work for ${span((now.value - Date.parse(each.acquired_at)) / 1000)}`
                  : `${span((end(each) - Date.parse(each.acquired_at)) / 1000)}; ${ended}`}
                {each.renewals > 0 && ` · ${many(each.renewals, "renewal")}`}
                {late.map(
                  (one) =>
                    ` · a result was refused ${ago(one.submitted_at, now.value)}${one.state === "KEPT" ? "" : ` (${words(one.state ?? "")})`}`,
                )}
                {each.note && ` · “${each.note}”`}
              </small>
            </li>
          );
        })}
      </ol>
      <div class="axis" style={{ padding: "0 16px 12px 0" }}>
        <span style={{ paddingLeft: "16px" }}>{clock(start, now.value)}</span>
        <span>{clock(last, now.value)}</span>
      </div>
    </>
  );
}

/** The result that waits for a person's word. */
function Review({ review, problem }: { review: ReviewInfo | undefined; problem?: Problem }) {
  return (
    <section class="card" aria-labelledby="review">
      <header>
        <h2 id="review">Waits for a review</h2>
        {review && (
          <small>
            <Author review={review} />
          </small>
        )}
      </header>
      {!review && (problem ? <Failed problem={problem} /> : <Skeleton />)}
      {review && (
        <div class="body review">
          <Waiting key={`${review.generation} ${review.digest}`} review={review} />
          <div class="row">
            <Decide review={review} />
          </div>
        </div>
      )}
    </section>
  );
}

function Results({ state, lineage }: { state: TaskState; lineage: Lineage | undefined }) {
  const refused = lineage?.refused ?? [];
  if (state.result === null && refused.length === 0) return null;
  return (
    <section class="card" aria-labelledby="results">
      <header>
        <h2 id="results">Result</h2>
        {state.result && (
          <small>
            gen {state.result.generation} · {state.result.agent_id} · {size(state.result.size)} ·{" "}
            <Ago at={state.result.submitted_at} />
          </small>
        )}
      </header>
      <div class="body">
        {state.result ? (
          <Accepted state={state} result={state.result} />
        ) : (
          <p class="soft">None counts yet.</p>
        )}
      </div>
      {refused.length > 0 && (
        <ul>
          {refused.map((each) => (
            <li class="need refused" key={each.id}>
              <Mark look="refused" />
              <p>
                Refused: generation {each.generation} by {each.agent_id || each.session_id},{" "}
                {words(each.rejection_reason ?? "")}
              </p>
              <small>
                {size(each.size)} · {words(each.state ?? "kept")} · <Ago at={each.submitted_at} />
              </small>
              <button
                type="button"
                class="btn"
                onClick={() => (compared.value = { taskId: state.task.id, refusedId: each.id })}
              >
                {each.state === "KEPT" ? "Compare…" : "Show"}
                <span class="hidden"> the refused result of generation {each.generation}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Accepted({ state, result }: { state: TaskState; result: TaskResult }) {
  const text = useResultText(state.task.id, result);
  return (
    <>
      {result.work_product_ref && (
        <p style={{ marginBottom: "8px" }}>
          <span class="soft">Work product </span>
          <code>{result.work_product_ref}</code>
        </p>
      )}
      {result.reference && (
        <p style={{ marginBottom: "8px" }}>
          <span class="soft">Reference </span>
          <code>{result.reference}</code>
        </p>
      )}
      {text === undefined && <Skeleton />}
      {text instanceof Problem && <Failed problem={text} />}
      {typeof text === "string" && <pre tabIndex={0}>{text}</pre>}
      <small class="mono faint" title="digest">
        {result.digest.slice(0, 23)}
      </small>
    </>
  );
}

const EVENTS_SHOWN = 30;

function Events({ id }: { id: string }) {
  const feed = useRead(
    "search_events",
    { task_id: id, limit: EVENTS_SHOWN },
    { concerns: (rows) => rows.has(id), pause: 800 },
  );
  const told = feed.data.value;
  const events = toldOf(told);
  return (
    <section class="card" aria-labelledby="events">
      <header>
        <h2 id="events">Events</h2>
        <small>newest first</small>
        <a class="more" href={to("history", "", { task: id })}>
          all
        </a>
      </header>
      {!told && (feed.error.value ? <Failed problem={feed.error.value} /> : <Skeleton />)}
      <ul>
        {events.map(({ event, says }) => (
          <li class="event" key={`${event.kind} ${event.id} ${event.position}`}>
            <Mark look={eventLook(event.event_type)} />
            <EventLine event={event} says={says} />
            <At at={String(event.event.timestamp)} />
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What it waits for, what waits for it, its parent and its subtasks, each with its state. */
function Near({ id, graph, state }: { id: string; graph: Graph | undefined; state: TaskState }) {
  const known = new Map((graph?.tasks ?? []).map((each) => [each.id, each]));
  const behind = (graph?.tasks ?? [])
    .filter((each) => each.depends_on.includes(id))
    .map((each) => each.id);
  const parts: [string, string[]][] = [
    ["Waits for", state.task.depends_on ?? []],
    ["Waited for by", behind],
    ["Subtasks", state.spawned_tasks],
    ["Part of", state.task.parent ? [state.task.parent] : []],
  ];
  return (
    <section class="card" aria-labelledby="near">
      <header>
        <h2 id="near">Dependencies</h2>
        <a class="more" href={to("graph", "", { around: id })}>
          graph
        </a>
      </header>
      {parts.map(
        ([name, ids]) =>
          (ids.length > 0 || name.startsWith("Wait")) && (
            <div class="line" key={name} style={{ padding: "8px 0" }}>
              <small style={{ padding: "0 16px" }}>
                {name} {ids.length > 0 ? ids.length : "nothing"}
              </small>
              {ids.map((each) => {
                const other = known.get(each);
                return (
                  <div class="dep" key={each}>
                    {other ? (
                      <State state={other.state} />
                    ) : (
                      <span class="st stuck">
                        <Mark look="stuck" />
                        missing
                      </span>
                    )}
                    <TaskId id={each} />
                    <span class="cut soft">{other && other.title !== each ? other.title : ""}</span>
                    {other?.agent && <small>{other.agent}</small>}
                  </div>
                );
              })}
            </div>
          ),
      )}
    </section>
  );
}

function Terminal({ state }: { state: TaskState }) {
  const id = state.task.id;
  const acts = actsFor(state).slice(0, 2);
  return (
    <section class="card" aria-labelledby="terminal">
      <header>
        <h2 id="terminal">From a terminal</h2>
      </header>
      <div class="body" style={{ display: "grid", gap: "8px", justifyItems: "start" }}>
        <Typed words={inProject(["genlock", "show", id])} />
        <Typed words={inProject(["genlock", "explain", id])} />
        {acts.map((name) => (
          <Typed key={name} words={inProject(ACTS[name].command({ state, answers: {} }))} />
        ))}
      </div>
    </section>
  );
}

function Definition({ state }: { state: TaskState }) {
  const { task } = state;
  const lines: [string, string | null | undefined][] = [
    ["Description", task.description],
    ["Phase", task.phase],
    ["Tags", (task.tags ?? []).join(", ")],
    ["Assigned to", task.assigned_to],
    ["Failures", state.failures ? String(state.failures) : ""],
    ["Added", whole(state.created_at)],
    ["Changed", whole(state.updated_at)],
  ];
  return (
    <section class="card" aria-labelledby="definition">
      <header>
        <h2 id="definition">Definition</h2>
      </header>
      <dl class="kv">
        {lines
          .filter(([, value]) => value)
          .map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name}=`}>{value}</dd>])}
      </dl>
    </section>
  );
}
