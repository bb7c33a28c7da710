// Who has worked on what, and when: the claims of each agent on one axis of time.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Activity, ClaimSpan } from "../api";
import { now, Problem, read } from "../client";
import { inProject } from "../dialogs";
import { clock, count, many, span, words } from "../format";
import { onChange, whenLive } from "../live";
import { filter, go, place, to } from "../router";
import { Ago, Empty, Failed, type Look, Mark, Skeleton, TaskId } from "../ui";

const RANGES: [string, number][] = [
  ["5 m", 300],
  ["15 m", 900],
  ["1 h", 3600],
  ["6 h", 21_600],
  ["24 h", 86_400],
];
const ROW = 30;
const NAMES = 148;
const MOST_SPANS = 200;
const AXIS = 26;

interface Lane {
  name: string;
  spans: ClaimSpan[];
  open: boolean;
}

export function AgentsScreen() {
  const { query } = place.value;
  const chosen = RANGES.find(([, length]) => String(length) === query.get("range"))?.[1] ?? 0;
  const seconds = chosen || MOST_BY_ITSELF;
  const [from, until] = ["from", "to"].map((name) => timeOf(query.get(name))) as [number, number];
  const fixed = until > 0;
  const told = useActivity(seconds, from, until, query.get("agent") ?? "");
  const by = query.get("by") === "session" ? "session_id" : "agent_id";
  const lanes = useMemo(() => lanesOf(told.data?.spans ?? [], by), [told.data, by]);
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
          {told.data &&
            `${many(lanes.length, by === "agent_id" ? "agent" : "session")}, ${lanes.filter((lane) => lane.open).length} at work`}
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
          aria-label="one line for each"
          value={query.get("by") ?? "agent"}
          onChange={(event) =>
            filter({
              by: event.currentTarget.value === "agent" ? undefined : event.currentTarget.value,
            })
          }
        >
          <option value="agent">by agent</option>
          <option value="session">by session</option>
        </select>
      </div>
      {told.problem && <Failed problem={told.problem} />}
      {!told.data && !told.problem && <Skeleton lines={8} />}
      {told.data && lanes.length === 0 && (
        <Empty title="Nobody held a task in this time" type={inProject(["genlock", "agents"])}>
          Choose a longer range, or go back in time.
        </Empty>
      )}
      {lanes.length > 0 && <Timeline lanes={lanes} start={start} end={end} fixed={fixed} />}
      {told.data && <Legend data={told.data} start={start} />}
      {told.data && lanes.length > 0 && <List lanes={lanes} />}
    </section>
  );
}

/** A time in the address, in milliseconds; 0 if it is none. */
function timeOf(text: string | null): number {
  return Number.isNaN(new Date(Number(text)).getTime()) ? 0 : Number(text);
}

const MOST_BY_ITSELF = 3600;
const LEAST_BY_ITSELF = 120;

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

function lanesOf(spans: ClaimSpan[], by: "agent_id" | "session_id"): Lane[] {
  const found = new Map<string, Lane>();
  for (const each of spans) {
    const name = (by === "session_id" ? each.session_id : each.agent_id) || each.session_id;
    let lane = found.get(name);
    if (!lane) found.set(name, (lane = { name, spans: [], open: false }));
    lane.spans.push(each);
    lane.open ||= each.end === null;
  }
  return [...found.values()].sort(
    (a, b) => Number(b.open) - Number(a.open) || a.name.localeCompare(b.name),
  );
}

export function spanLook(each: ClaimSpan): Look {
  if (each.end === null) return each.health === "WORKING" ? "moving" : "stuck";
  if (each.ended === "COMPLETED") return "done";
  return each.ended === "VOLUNTARY" || each.ended === "SPAWNED" ? "blocked" : "stuck";
}

const KINDS: Look[] = ["done", "moving", "stuck", "blocked"];

/** The colours as they are now: a canvas knows no variables. */
function colours(within: HTMLElement): Record<string, string> {
  const probe = document.createElement("span");
  within.append(probe);
  const told: Record<string, string> = {};
  const of = (name: string, value: string, kind = "") => {
    probe.className = kind;
    probe.style.color = value;
    told[name] = getComputedStyle(probe).color;
  };
  for (const kind of KINDS) {
    of(kind, "var(--c)", kind);
    of(`${kind}-t`, "var(--ct)", kind);
  }
  for (const name of ["line", "ink", "soft", "faint", "card", "hover", "accent"])
    of(name, `var(--${name})`);
  probe.remove();
  return told;
}

interface Hit {
  left: number;
  right: number;
  row: number;
  span: ClaimSpan;
}

function Timeline({
  lanes,
  start,
  end,
  fixed,
}: {
  lanes: Lane[];
  start: number;
  end: number;
  fixed: boolean;
}) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const hits = useRef<Hit[]>([]);
  const [over, setOver] = useState<{ x: number; y: number; span: ClaimSpan } | null>(null);
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const [size, setSize] = useState(0);
  const height = Math.min(lanes.length * ROW, Math.max(240, innerHeight - 300));
  const draw = () => {
    if (canvas.current && box.current)
      hits.current = paint(canvas.current, box.current, lanes, start, end, height, drag);
  };
  useEffect(draw);
  useEffect(() => {
    const grow = new ResizeObserver(() => setSize((n) => n + 1));
    grow.observe(box.current!);
    return () => grow.disconnect();
  }, []);
  const find = (event: PointerEvent | MouseEvent): Hit | undefined => {
    const { left, top } = canvas.current!.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top - AXIS];
    return hits.current.find(
      (each) => x >= each.left - 2 && x <= each.right + 2 && y >= each.row && y < each.row + ROW,
    );
  };
  const timeAt = (x: number) => {
    const rect = canvas.current!.getBoundingClientRect();
    return start + (Math.max(0, x - rect.left - NAMES) / (rect.width - NAMES)) * (end - start);
  };
  const move = (event: PointerEvent) => {
    if (drag) return setDrag([drag[0], event.clientX]);
    const hit = find(event);
    setOver(hit ? { x: event.clientX, y: event.clientY, span: hit.span } : null);
  };
  const up = (event: PointerEvent) => {
    const chosen = drag;
    setDrag(null);
    if (!chosen || event.pointerType === "touch") return;
    const [a, b] = [timeAt(Math.min(...chosen)), timeAt(Math.max(...chosen))];
    if (Math.abs(chosen[1] - chosen[0]) > 8 && b - a > 1000)
      filter({ from: String(Math.round(a)), to: String(Math.round(b)) });
    else {
      const hit = find(event);
      if (hit) go(to("task", hit.span.task_id));
    }
  };
  const said = `${many(lanes.length, "agent")} from ${clock(start, end)} to ${fixed ? clock(end, end) : "now"}; the same is listed below`;
  return (
    <div
      class="line"
      ref={box}
      tabIndex={0}
      role="group"
      aria-label="timeline, scrolls"
      style={{ height: `${height + AXIS}px`, overflowY: "auto", position: "relative" }}
      onScroll={draw}
      data-size={size}
    >
      <canvas
        ref={canvas}
        class="canvas"
        role="img"
        aria-label={said}
        style={{ position: "sticky", top: 0, cursor: over ? "pointer" : "crosshair" }}
        onPointerMove={move}
        onPointerLeave={() => setOver(null)}
        onPointerDown={(event) =>
          event.button === 0 &&
          event.pointerType !== "touch" &&
          setDrag([event.clientX, event.clientX])
        }
        onPointerUp={up}
        onClick={(event) => {
          const hit = find(event);
          if (hit && !drag && (event as unknown as PointerEvent).pointerType === "touch")
            go(to("task", hit.span.task_id));
        }}
      />
      <div style={{ height: `${Math.max(0, lanes.length * ROW - height)}px` }} />
      {over && !drag && (
        <div
          class="toast moving"
          role="presentation"
          style={{
            position: "fixed",
            zIndex: 9,
            pointerEvents: "none",
            left: `${Math.min(over.x + 14, innerWidth - 330)}px`,
            top: `${over.y + 16}px`,
            maxWidth: "320px",
          }}
        >
          <Mark look={spanLook(over.span)} />
          <span>
            <b class="mono">{over.span.task_id}</b> gen {over.span.generation} of{" "}
            {over.span.agent_id}
            <br />
            <small>{told(over.span, end)}</small>
          </span>
        </div>
      )}
    </div>
  );
}

function told(each: ClaimSpan, end: number): string {
  const begun = each.start === null ? null : Date.parse(each.start);
  const over = each.end === null ? end : Date.parse(each.end);
  const long =
    begun === null
      ? "since before this range"
      : `${clock(begun, end)}, ${span((over - begun) / 1000)}`;
  return `${long}; ${each.end === null ? words(each.health ?? "working") : words(each.ended ?? "ended")}`;
}

function paint(
  canvas: HTMLCanvasElement,
  box: HTMLElement,
  lanes: Lane[],
  start: number,
  end: number,
  height: number,
  drag: [number, number] | null,
): Hit[] {
  const ratio = devicePixelRatio || 1;
  const wide = box.clientWidth;
  const tall = height + AXIS;
  canvas.width = wide * ratio;
  canvas.height = tall * ratio;
  canvas.style.height = `${tall}px`;
  const pen = canvas.getContext("2d")!;
  pen.scale(ratio, ratio);
  const ink = colours(box);
  const x = (time: number) => NAMES + ((time - start) / (end - start)) * (wide - NAMES - 12);
  const top = box.scrollTop;
  const hits: Hit[] = [];
  const face = getComputedStyle(document.body).fontFamily;
  const mono = getComputedStyle(
    box.querySelector("code") ?? document.documentElement,
  ).getPropertyValue("--f-mono");
  pen.textBaseline = "middle";
  ticks(pen, ink, start, end, x, tall, face);
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, wide, height);
  pen.clip();
  const first = Math.floor(top / ROW);
  const last = Math.min(lanes.length, Math.ceil((top + height) / ROW));
  for (let at = first; at < last; at++) {
    const lane = lanes[at]!;
    const y = AXIS + at * ROW - top;
    pen.strokeStyle = ink.line!;
    pen.beginPath();
    pen.moveTo(0, y + ROW - 0.5);
    pen.lineTo(wide, y + ROW - 0.5);
    pen.stroke();
    pen.fillStyle = lane.open ? ink.ink! : ink.soft!;
    pen.font = `${lane.open ? 500 : 400} 12px ${face}`;
    pen.fillText(fit(pen, lane.name, NAMES - 28), 16, y + ROW / 2);
    for (const each of lane.spans.slice(-MOST_SPANS)) {
      const left = Math.max(NAMES, each.start === null ? NAMES : x(Date.parse(each.start)));
      const right = Math.min(wide - 12, each.end === null ? x(end) : x(Date.parse(each.end)));
      if (right < NAMES || left > wide - 12) continue;
      hits.push({ left, right, row: y - AXIS, span: each });
      bar(pen, ink, each, left, Math.max(right, left + 2), y, mono);
    }
  }
  pen.restore();
  if (drag) {
    const rect = canvas.getBoundingClientRect();
    const [a, b] = [Math.min(...drag) - rect.left, Math.max(...drag) - rect.left];
    pen.fillStyle = ink.accent!;
    pen.globalAlpha = 0.18;
    pen.fillRect(a, 0, b - a, tall);
    pen.globalAlpha = 1;
  }
  return hits;
}

function bar(
  pen: CanvasRenderingContext2D,
  ink: Record<string, string>,
  each: ClaimSpan,
  left: number,
  right: number,
  y: number,
  mono: string,
): void {
  const look = spanLook(each);
  const wide = right - left;
  pen.fillStyle = ink[`${look}-t`]!;
  pen.strokeStyle = ink[look]!;
  pen.beginPath();
  pen.roundRect(left + 0.5, y + 5.5, Math.max(1, wide - 1), ROW - 12, 3);
  if (wide > 3) pen.fill();
  pen.stroke();
  if (wide < 14) return;
  pen.fillStyle = ink[look]!;
  // The end has a shape, too: a tick is done, a cross was lost, an arrow goes on.
  pen.font = `600 11px ${mono || "monospace"}`;
  const sign =
    each.end === null
      ? look === "moving"
        ? "▶"
        : "!"
      : look === "done"
        ? "✓"
        : look === "stuck"
          ? "×"
          : "–";
  pen.fillText(sign, right - 12, y + ROW / 2 - 0.5);
  if (wide < 44) return;
  pen.font = `11px ${mono || "monospace"}`;
  pen.fillText(fit(pen, each.task_id, wide - 24), left + 6, y + ROW / 2 - 0.5);
}

function fit(pen: CanvasRenderingContext2D, text: string, wide: number): string {
  if (pen.measureText(text).width <= wide) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > wide) end -= 1;
  return end > 1 ? `${text.slice(0, end)}…` : "";
}

const STEPS = [1, 5, 15, 30, 60, 120, 300, 900, 1800, 3600, 7200, 14_400, 21_600].map(
  (each) => each * 1000,
);

function ticks(
  pen: CanvasRenderingContext2D,
  ink: Record<string, string>,
  start: number,
  end: number,
  x: (time: number) => number,
  tall: number,
  face: string,
): void {
  const step = STEPS.find((each) => x(start + each) - x(start) > 90) ?? 43_200_000;
  pen.font = `11px ${face}`;
  for (let time = Math.ceil(start / step) * step; time <= end; time += step) {
    pen.strokeStyle = ink.line!;
    pen.beginPath();
    pen.moveTo(Math.round(x(time)) + 0.5, AXIS - 6);
    pen.lineTo(Math.round(x(time)) + 0.5, tall);
    pen.stroke();
    pen.fillStyle = ink.faint!;
    const text = clock(time, end);
    if (x(time) + 60 < pen.canvas.width)
      pen.fillText(step < 60_000 ? text : text.replace(/:00$/, ""), x(time) + 4, AXIS / 2);
  }
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
function List({ lanes }: { lanes: Lane[] }) {
  return (
    <details class="line" style={{ padding: "8px 16px" }}>
      <summary class="soft" style={{ cursor: "pointer", font: "var(--t-12)" }}>
        As a list
      </summary>
      <ul>
        {lanes.slice(0, 100).map((lane) => {
          const last = lane.spans.at(-1)!;
          return (
            <li class="event" key={lane.name} style={{ padding: "6px 0" }}>
              <Mark look={spanLook(last)} />
              <p>
                <b>{lane.name}</b>{" "}
                {last.end === null ? "works on" : `${words(last.ended ?? "ended")}:`}{" "}
                <TaskId id={last.task_id} /> gen {last.generation};{" "}
                {many(lane.spans.length, "claim")} in this time
              </p>
              {last.start && <Ago at={last.end ?? last.start} />}
            </li>
          );
        })}
      </ul>
    </details>
  );
}
