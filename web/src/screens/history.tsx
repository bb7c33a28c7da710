// What has happened, newest first: who, what, to which task, when.

import { useEffect, useState } from "preact/hooks";
import { EVENTS, type EventPage, type FeedEvent } from "../api";
import { now, Problem, read } from "../client";
import { inProject } from "../dialogs";
import { anything, useRead } from "../data";
import { clock, local, many, size, words } from "../format";
import { onChange } from "../live";
import { filter, place, to } from "../router";
import { Ago, At, Empty, Failed, type Look, Mark, Skeleton, Sought, TaskId } from "../ui";
import { compared } from "./compare";

const LOOK_OF: [RegExp, Look][] = [
  [/REJECTED|DENIED|DISCARDED/, "refused"],
  [/EXPIRED|ORPHANED|STALE|SUPERSEDED|HELD|CANCELLED|RESET|LAPSED|REVOKED|ESCALATED/, "stuck"],
  [/ACCEPTED|ADOPTED|FINISHED|_MET/, "done"],
  [/CLAIM_|RENEWED|PROGRESS|SPAWNED/, "moving"],
  [/ADDED|REOPENED|DUE|ASSIGNED|REGISTERED/, "ready"],
];

export function eventLook(type: string): Look {
  return LOOK_OF.find(([pattern]) => pattern.test(type))?.[1] ?? "blocked";
}

/** What the service says of an event, with its task as a link. */
export function EventLine({ event, says }: { event: FeedEvent; says: string }) {
  const told = local(says, now.value);
  const task = event.event.task_id ? String(event.event.task_id) : "";
  const at = task ? told.indexOf(task) : -1;
  if (at < 0) return <p>{told}</p>;
  return (
    <p>
      {told.slice(0, at)}
      <a class="id" href={to("task", task)}>
        <bdi>{task}</bdi>
      </a>
      {told.slice(at + task.length)}
    </p>
  );
}

export interface Told {
  event: FeedEvent;
  says: string;
}

export function toldOf(page: EventPage | undefined): Told[] {
  return (page?.events ?? []).map((event, at) => ({
    event,
    says: page!.sentences[at] ?? event.event_type,
  }));
}

/** Events of which there are many and that tell little. Shown only if one asks for them. */
const ROUTINE = ["LEASE_RENEWED", "SESSION_HEARTBEAT", "SETTLED", "PROGRESS_REPORTED"];
type EventName = (typeof EVENTS)[number];
const SHOWN = EVENTS.filter((name) => !ROUTINE.includes(name));
const PAGE = 100;

export function HistoryScreen() {
  const { query } = place.value;
  const [type, task, actor] = ["type", "task", "actor"].map((name) => query.get(name) ?? "");
  const key = JSON.stringify([type, task, actor, place.value.tenant, place.value.project]);
  return (
    <section class="card" aria-labelledby="history">
      <header>
        <h1 id="history" style={{ font: "600 var(--t-13)" }}>
          History
        </h1>
        <small>newest first, in your local time</small>
      </header>
      <div class="filters">
        <select
          class="field"
          aria-label="kind of event"
          value={type}
          onChange={(event) => filter({ type: event.currentTarget.value })}
        >
          <option value="">all but renewals and progress</option>
          {EVENTS.map((name) => (
            <option key={name} value={name}>
              {words(name)}
            </option>
          ))}
        </select>
        <Filter name="task" value={task!} hint="task" />
        <Filter name="actor" value={actor!} hint="agent, or session:… or user:…" />
      </div>
      {type === "RESULT_REJECTED" && <Kept task={task!} />}
      <Pages key={key} type={type!} task={task!} actor={actor!} />
    </section>
  );
}

const MOST_KEPT = 100;

/** Of all that was refused, what is still there to be looked at, adopted or discarded. */
function Kept({ task }: { task: string }) {
  const read = useRead(
    "list_refused_results",
    { task_id: task || undefined, limit: MOST_KEPT },
    { concerns: anything, pause: 1500 },
  );
  const kept = read.data.value;
  if (!kept) return null;
  return (
    <section aria-label="still kept">
      <p class="foot-note line">
        {kept.length === 0
          ? "None of them is kept any more."
          : `${kept.length === MOST_KEPT ? "The first " : ""}${many(kept.length, "refused result")} still kept:`}
      </p>
      <ul>
        {kept.map((each) => (
          <li class="need refused line" key={each.id}>
            <Mark look="refused" />
            <p>
              <TaskId id={each.task_id} /> gen {each.generation} by{" "}
              {each.agent_id || each.session_id}
            </p>
            <small>
              {size(each.size)} · <Ago at={each.submitted_at} />
            </small>
            <button
              type="button"
              class="btn"
              onClick={() => (compared.value = { taskId: each.task_id, refusedId: each.id })}
            >
              Compare…<span class="hidden"> {each.task_id}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Filter({ name, value, hint }: { name: string; value: string; hint: string }) {
  return (
    <Sought value={value} name={hint} hint={hint} seek={(text) => filter({ [name]: text })} />
  );
}

interface Given {
  type: string;
  task: string;
  actor: string;
}

/** Who acted is an agent, or with a word before it a session or a user. */
async function page(
  { type, task, actor }: Given,
  before: string | undefined,
  abort: AbortSignal,
): Promise<EventPage> {
  const types = EVENTS.includes(type as EventName) ? [type as EventName] : SHOWN;
  const ask = (who: { agent_id?: string; session_id?: string; user_id?: string }) =>
    read(
      "search_events",
      { types, task_id: task || undefined, before, limit: PAGE, ...who },
      { abort },
    );
  if (!actor) return ask({});
  const kind = /^(agent|session|user):(.*)$/.exec(actor);
  return ask(kind ? { [`${kind[1]}_id`]: kind[2] } : { agent_id: actor });
}

function Pages(given: Given) {
  const [events, setEvents] = useState<Told[]>();
  const [before, setBefore] = useState<string | null>(null);
  const [newer, setNewer] = useState(0);
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const [round, setRound] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    page(given, undefined, abort.signal).then(
      (told) => {
        setEvents(toldOf(told));
        setBefore(told.next);
        setNewer(0);
        setProblem(undefined);
      },
      (error) => error instanceof Problem && setProblem(error),
    );
    return () => abort.abort();
  }, [round]);
  useEffect(
    () =>
      onChange((rows, routine) => {
        if (routine && rows !== null) return;
        if (rows === null || document.documentElement.scrollTop < 80) setRound((n) => n + 1);
        else setNewer((n) => n + rows.size);
      }),
    [],
  );
  useEffect(() => {
    const take = () => setRound((n) => n + 1);
    addEventListener("take-in", take);
    return () => removeEventListener("take-in", take);
  }, []);
  const more = async () => {
    setBusy(true);
    try {
      const told = await page(given, before!, new AbortController().signal);
      setEvents([...(events ?? []), ...toldOf(told)]);
      setBefore(told.next);
    } catch (error) {
      if (error instanceof Problem) setProblem(error);
    }
    setBusy(false);
  };
  if (!events)
    return problem ? (
      <Failed problem={problem} retry={() => setRound(round + 1)} />
    ) : (
      <Skeleton lines={12} />
    );
  if (events.length === 0)
    return <Empty title="Nothing like this has happened" type={inProject(["genlock", "events"])} />;
  let day = "";
  return (
    <>
      {newer > 0 && (
        <button
          type="button"
          class="btn"
          style={{ margin: "8px 16px" }}
          onClick={() => setRound(round + 1)}
        >
          There are newer ones: show
        </button>
      )}
      <ol>
        {events.map(({ event, says }) => {
          const at = String(event.event.timestamp);
          const dated = new Date(at).toDateString();
          const head = dated !== day;
          day = dated;
          return [
            head && (
              <li key={dated} class="foot-note line">
                <b>{dated}</b>
              </li>
            ),
            <Line key={`${event.kind} ${event.id} ${event.position}`} event={event} says={says} />,
          ];
        })}
      </ol>
      <div class="foot-note line">
        {before === null ? (
          "That is where the history begins."
        ) : (
          <button type="button" class="btn" disabled={busy} onClick={more}>
            {busy ? "…" : "Earlier"}
          </button>
        )}
        {problem && <span class="st stuck">{problem.message}</span>}
      </div>
    </>
  );
}

/** Who caused an event, as far as the event says. */
export function actorOf(event: Record<string, unknown>): string {
  const actor = (event.actor ?? {}) as Record<string, unknown>;
  const named = actor.key_name ?? actor.name ?? actor.user ?? event.agent_id ?? event.session_id;
  return String(named || "");
}

function Line({ event, says }: Told) {
  const [open, setOpen] = useState(false);
  const at = String(event.event.timestamp);
  const generation = Number(event.event.generation ?? 0);
  return (
    <li>
      <div class="event">
        <Mark look={eventLook(event.event_type)} />
        <div class="row">
          <EventLine event={event} says={says} />
          {generation > 0 && <span class="tag">GEN {generation}</span>}
          <button
            type="button"
            class="conn"
            aria-expanded={open}
            aria-label={`${open ? "less" : "more"} about event ${event.position}`}
            onClick={() => setOpen(!open)}
          >
            {open ? "less" : "more"}
          </button>
        </div>
        <At at={at} />
      </div>
      {open && (
        <div style={{ padding: "0 16px 10px 38px" }}>
          <pre tabIndex={0}>{JSON.stringify(event.event, null, 2)}</pre>
          <small>
            {words(event.event_type)} · position {event.position} · {clock(at, 0)}
            {actorOf(event.event) && ` · by ${actorOf(event.event)}`}
          </small>
        </div>
      )}
    </li>
  );
}
