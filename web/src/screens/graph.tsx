// Who waits for whom: boxes where the service has placed them, edges that light up as work is done.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { GraphEdge, GraphLayout, GraphNode } from "../api";
import { ACTS, actsFor } from "../acts";
import { anything, useRead } from "../data";
import { asked, inProject } from "../dialogs";
import { count, many } from "../format";
import { onChange } from "../live";
import { filter, go, place, to } from "../router";
import { Empty, Failed, lookOf, Mark, Skeleton, State, TaskId, wordOf } from "../ui";

const FAR = 0.4;
const READABLE = 0.7;

export function GraphScreen() {
  const { query } = place.value;
  const overview = useRead("get_overview", { limit: 1 });
  const [around, track] = [query.get("around") ?? "", query.get("track") ?? ""];
  const depth = Number(query.get("depth")) || 2;
  const view = query.get("view") ?? "";
  const hide = query.get("open") === "1";
  const told = overview.data.value;
  const tracks = told?.tracks.filter((each) => each.track) ?? [];
  return (
    <section class="card" aria-labelledby="graph">
      <header>
        <h1 id="graph" style={{ font: "600 var(--t-13)" }}>
          Graph
        </h1>
        <small>
          {around
            ? `${many(depth, "step")} around ${around}`
            : track
              ? `track ${track}`
              : "everything stands to the right of what it waits for"}
        </small>
      </header>
      <div class="filters">
        <div class="chips" role="group" aria-label="what is drawn">
          <button
            type="button"
            class="chip"
            aria-pressed={!track && !around && view !== "tracks"}
            onClick={() =>
              filter({ track: undefined, around: undefined, depth: undefined, view: "tasks" })
            }
          >
            tasks
          </button>
          <button
            type="button"
            class="chip"
            aria-pressed={!track && !around && view === "tracks"}
            onClick={() =>
              filter({ track: undefined, around: undefined, depth: undefined, view: "tracks" })
            }
          >
            by track
          </button>
          {tracks.map((each) => (
            <button
              key={each.track}
              type="button"
              class="chip"
              aria-pressed={track === each.track}
              title={each.purpose}
              onClick={() => filter({ track: each.track, around: undefined, view: undefined })}
            >
              <b>{each.track}</b> <span class="wide">{each.purpose}</span>
            </button>
          ))}
          {around && (
            <button
              type="button"
              class="chip"
              aria-pressed="true"
              onClick={() => filter({ around: undefined, depth: undefined })}
            >
              around <b>{around}</b> ×
            </button>
          )}
        </div>
        <span class="grow" />
        {around && (
          <label class="row">
            steps
            <input
              class="field"
              type="number"
              min="1"
              max="10"
              value={depth}
              style={{ width: "64px" }}
              onChange={(event) => filter({ depth: event.currentTarget.value })}
            />
          </label>
        )}
        <label class="row soft">
          <input
            type="checkbox"
            checked={hide}
            onChange={() => filter({ open: hide ? undefined : "1" })}
          />
          hide what is done
        </label>
      </div>
      <Plane
        key={`${around} ${track} ${depth} ${view} ${hide}`}
        around={around}
        track={track}
        depth={depth}
        view={view}
        hide={hide}
      />
    </section>
  );
}

interface View {
  x: number;
  y: number;
  scale: number;
}

interface Wanted {
  around: string;
  track: string;
  depth: number;
  view: string;
  hide: boolean;
}

function Plane({ around, track, depth, view, hide }: Wanted) {
  const given = around ? { around, depth } : track ? { tracks: [track] } : {};
  const folded = view === "tracks" ? true : view === "tasks" ? false : undefined;
  const graph = useRead(
    "get_graph_layout",
    { ...given, folded, hide_finished: hide || undefined },
    { concerns: anything, pause: 1500 },
  );
  const [selected, setSelected] = useState(around);
  const told = graph.data.value;
  if (!told)
    return graph.error.value ? (
      <Failed problem={graph.error.value} retry={graph.reload} />
    ) : (
      <Skeleton lines={10} />
    );
  if (told.nodes.length === 0)
    return <Empty title="There is nothing to draw" type={inProject(["genlock", "graph"])} />;
  const left = Object.entries(told.left_out);
  return (
    <>
      <div class="split line">
        <Drawing graph={told} selected={selected} select={setSelected} />
        <Side graph={told} selected={selected} select={setSelected} />
      </div>
      {left.length > 0 && (
        <p class="foot-note line">
          Not drawn, because a picture of more tells nothing:{" "}
          {left.map(([state, n]) => `${count(n)} ${wordOf(state)}`).join(", ")}. Choose a track, or
          look around a task.
        </p>
      )}
    </>
  );
}

const WIDE = 176;
const TALL = 46;

const ACROSS = WIDE + 52;
const DOWN = TALL + 18;

/** From the service's layers and rows to pixels. */
export function placedOf(graph: GraphLayout) {
  const boxes = new Map(
    graph.nodes.map((node) => [node.id, { x: node.x * ACROSS, y: node.y * DOWN, node }]),
  );
  return {
    boxes,
    edges: graph.edges.map((edge) => ({ ...edge, path: pathOf(edge, boxes) })),
    wide: Math.max(1, graph.width) * ACROSS - (ACROSS - WIDE),
    tall: Math.max(1, graph.height) * DOWN - (DOWN - TALL),
  };
}
type Placed = ReturnType<typeof placedOf>;

/** A smooth line from the right of one box, through its bends, to the left of another. */
function pathOf(edge: GraphEdge, boxes: Map<string, { x: number; y: number }>): string {
  const [from, to] = [boxes.get(edge.source), boxes.get(edge.target)];
  if (!from || !to) return "";
  let [x, y] = [from.x + WIDE, from.y + TALL / 2];
  let path = `M${x} ${y}`;
  const curve = (toX: number, toY: number) => {
    const middle = (x + toX) / 2;
    path += `C${middle} ${y} ${middle} ${toY} ${toX} ${toY}`;
    [x, y] = [toX, toY];
  };
  for (const [bendX, bendY] of edge.bends) {
    curve(bendX * ACROSS, bendY * DOWN + TALL / 2);
    path += `H${(x = bendX * ACROSS + WIDE)}`;
  }
  curve(to.x, to.y + TALL / 2);
  return path;
}

function Drawing({
  graph,
  selected,
  select,
}: {
  graph: GraphLayout;
  selected: string;
  select: (id: string) => void;
}) {
  const svg = useRef<SVGSVGElement>(null);
  const placed = useMemo(() => placedOf(graph), [graph]);
  const [view, setView] = useState<View | null>(null);
  const [states, setStates] = useState(new Map<string, string>());
  const pointers = useRef(new Map<number, [number, number]>());
  const moved = useRef(false);
  useEffect(() => setStates(new Map()), [graph]);
  useEffect(
    () =>
      onChange((rows) => {
        if (rows === null) return;
        const known = [...rows].filter(([id, row]) => row !== null && placed.boxes.has(id));
        if (known.length)
          setStates(
            (old) =>
              new Map([...old, ...known.map(([id, row]) => [id, row!.state] as [string, string])]),
          );
      }),
    [placed],
  );
  const fit = () => {
    const { clientWidth, clientHeight } = svg.current!;
    const scale = Math.min(
      1.1,
      (clientWidth - 32) / placed.wide,
      (clientHeight - 32) / placed.tall,
    );
    setView({
      scale,
      x: (clientWidth - placed.wide * scale) / 2,
      y: (clientHeight - placed.tall * scale) / 2,
    });
    return scale;
  };
  const begin = () => {
    // Where all of it would be too small to read, it begins at its left.
    if (fit() >= FAR) return;
    const { clientHeight } = svg.current!;
    setView({ scale: READABLE, x: 16, y: (clientHeight - placed.tall * READABLE) / 2 });
  };
  useEffect(begin, [placed.wide, placed.tall, placed.boxes.size]);
  const zoom = (by: number, x = svg.current!.clientWidth / 2, y = svg.current!.clientHeight / 2) =>
    setView((old) => {
      if (!old) return old;
      const scale = Math.max(0.08, Math.min(3, old.scale * by));
      const ratio = scale / old.scale;
      return { scale, x: x - (x - old.x) * ratio, y: y - (y - old.y) * ratio };
    });
  useEffect(() => {
    // Preact listens passively to wheels, and a page that scrolls and zooms at once helps nobody.
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const { left, top } = svg.current!.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 400), event.clientX - left, event.clientY - top);
    };
    svg.current!.addEventListener("wheel", wheel, { passive: false });
    return () => svg.current?.removeEventListener("wheel", wheel);
  }, []);
  const drag = (event: PointerEvent) => {
    const known = pointers.current;
    const before = known.get(event.pointerId);
    if (!before) return;
    const others = [...known].filter(([id]) => id !== event.pointerId);
    const [x, y] = [event.clientX, event.clientY];
    if (others.length) {
      const [, [ox, oy]] = others[0]!;
      const was = Math.hypot(before[0] - ox, before[1] - oy);
      const { left, top } = svg.current!.getBoundingClientRect();
      if (was > 0) zoom(Math.hypot(x - ox, y - oy) / was, (x + ox) / 2 - left, (y + oy) / 2 - top);
    } else {
      const [dx, dy] = [x - before[0], y - before[1]];
      moved.current ||= Math.hypot(dx, dy) > 3;
      setView((old) => old && { ...old, x: old.x + dx, y: old.y + dy });
    }
    known.set(event.pointerId, [x, y]);
  };
  const lit = new Set(
    placed.edges.filter((edge) => edge.source === selected || edge.target === selected),
  );
  return (
    <div style={{ position: "relative", minWidth: 0 }}>
      <svg
        ref={svg}
        class="plane"
        role="group"
        aria-label={`${many(graph.nodes.length, graph.folded ? "track" : "task")}; arrow keys follow the edges, and the same is listed beside`}
        onPointerDown={(event) => {
          moved.current = false;
          pointers.current.set(event.pointerId, [event.clientX, event.clientY]);
        }}
        onPointerMove={drag}
        onPointerUp={(event) => pointers.current.delete(event.pointerId)}
        onPointerCancel={(event) => pointers.current.delete(event.pointerId)}
        onPointerLeave={(event) => pointers.current.delete(event.pointerId)}
      >
        {view && (
          <g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
            {placed.edges.map((edge) => (
              <path
                key={`${edge.source} ${edge.target}`}
                d={edge.path}
                class={`edge ${edge.met || states.get(edge.source) === "COMPLETED" ? "met" : ""} ${lit.has(edge) ? "lit" : ""}`}
                style={
                  edge.count > 1 ? { strokeWidth: Math.min(6, 1 + Math.log2(edge.count)) } : {}
                }
              />
            ))}
            {[...placed.boxes.values()].map(({ x, y, node }) => (
              <Box
                key={node.id}
                node={node}
                state={states.get(node.id) ?? node.state ?? ""}
                x={x}
                y={y}
                chosen={node.id === selected}
                far={view.scale < FAR}
                choose={() => !moved.current && select(node.id)}
                follow={(key) => focusOn(svg.current!, next(placed, node.id, key), select)}
              />
            ))}
          </g>
        )}
      </svg>
      <div class="row" style={{ position: "absolute", right: "12px", bottom: "12px" }}>
        <button type="button" class="btn" aria-label="zoom out" onClick={() => zoom(0.8)}>
          −
        </button>
        <span class="num soft" style={{ minWidth: "5ch", textAlign: "center" }}>
          {view ? `${Math.round(view.scale * 100)}%` : ""}
        </span>
        <button type="button" class="btn" aria-label="zoom in" onClick={() => zoom(1.25)}>
          +
        </button>
        <button type="button" class="btn" onClick={fit}>
          Fit
        </button>
      </div>
    </div>
  );
}

function focusOn(svg: SVGSVGElement, id: string | undefined, select: (id: string) => void): void {
  if (!id) return;
  select(id);
  svg.querySelector<SVGGElement>(`[data-id="${CSS.escape(id)}"]`)?.focus();
}

/** Left: what it waits for. Right: what waits for it. Up and down: its neighbours. */
function next({ boxes, edges }: Placed, id: string, key: string): string | undefined {
  const here = boxes.get(id)!;
  const near = (ids: string[]) =>
    ids
      .filter((each) => boxes.has(each))
      .sort((a, b) => Math.abs(boxes.get(a)!.y - here.y) - Math.abs(boxes.get(b)!.y - here.y))[0];
  if (key === "ArrowLeft")
    return near(edges.filter((edge) => edge.target === id).map((edge) => edge.source));
  if (key === "ArrowRight")
    return near(edges.filter((edge) => edge.source === id).map((edge) => edge.target));
  const way = key === "ArrowDown" ? 1 : -1;
  return near(
    [...boxes.keys()].filter(
      (other) => boxes.get(other)!.x === here.x && (boxes.get(other)!.y - here.y) * way > 0,
    ),
  );
}

function open(node: GraphNode): void {
  if (node.kind === "track") filter({ track: node.id, view: undefined });
  else go(to("task", node.id));
}

function Box({
  node,
  state,
  x,
  y,
  chosen,
  far,
  choose,
  follow,
}: {
  node: GraphNode;
  state: string;
  x: number;
  y: number;
  chosen: boolean;
  far: boolean;
  choose: () => void;
  follow: (key: string) => void;
}) {
  const look = node.kind === "track" ? "blocked" : lookOf(state);
  const title = node.title && node.title !== node.id ? ` · ${node.title}` : "";
  const said = told(node, state) + title;
  return (
    <g
      class={`node ${look} ${node.kind === "track" ? "folded" : ""} ${chosen ? "sel" : ""}`}
      transform={`translate(${x} ${y})`}
      tabIndex={0}
      role="button"
      data-id={node.id}
      aria-pressed={chosen}
      onClick={choose}
      onDblClick={() => open(node)}
      onKeyDown={(event) => {
        if (event.key === "Enter") {
          if (chosen) open(node);
          else choose();
        } else if (event.key.startsWith("Arrow")) follow(event.key);
        else return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      {/* It is the box's name, too. */}
      <title>{said}</title>
      <rect width={WIDE} height={TALL} rx="6" />
      {!far &&
        (node.kind === "track" ? <Inside node={node} /> : <Words node={node} state={state} />)}
    </g>
  );
}

function told(node: GraphNode, state: string): string {
  if (node.kind === "track") return `track ${node.id || "none"}, ${many(node.total, "task")}`;
  return `${node.id}, ${wordOf(state)}${node.agent_id ? `, ${node.agent_id}` : ""}`;
}

const short = (text: string, most: number) =>
  text.length > most ? `${text.slice(0, most - 1)}…` : text;

function Words({ node, state }: { node: GraphNode; state: string }) {
  const below = node.agent_id
    ? `${node.agent_id} · gen ${node.generation}`
    : node.title !== node.id
      ? node.title
      : wordOf(state);
  return (
    <>
      <svg x="10" y="10" width="12" height="12" viewBox="0 0 12 12">
        <Mark look={lookOf(state)} />
      </svg>
      <text class="name" x="28" y="20">
        {short(node.id, 20)}
      </text>
      <text class="what" x="10" y="37">
        {short(below, 26)}
      </text>
    </>
  );
}

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

/** A track's tasks by state, as a bar. */
function Inside({ node }: { node: GraphNode }) {
  let at = 10;
  const wide = WIDE - 20;
  return (
    <>
      <text class="name" x="10" y="19">
        {node.id || "no track"}
      </text>
      <text class="what" x={WIDE - 10} y="19" text-anchor="end">
        {node.states.COMPLETED ?? 0}/{node.total}
      </text>
      {ORDER.filter((state) => node.states[state]).map((state) => {
        const part = (node.states[state]! / node.total) * wide;
        const x = at;
        at += part;
        return (
          <rect
            key={state}
            class={lookOf(state)}
            x={x}
            y="28"
            width={Math.max(1, part - 1)}
            height="9"
            rx="2"
            style={{ fill: "var(--c)", stroke: "none" }}
          />
        );
      })}
    </>
  );
}

/** The chosen box, and all of them in words. */
function Side({
  graph,
  selected,
  select,
}: {
  graph: GraphLayout;
  selected: string;
  select: (id: string) => void;
}) {
  const node = graph.nodes.find((each) => each.id === selected);
  const known = new Map(graph.nodes.map((each) => [each.id, each]));
  const isTask = node?.kind === "task";
  const state = useRead(
    "get_task_state",
    { task_id: selected },
    { when: isTask, concerns: (rows) => rows.has(selected) },
  );
  const before = graph.edges.filter((edge) => edge.target === selected).map((edge) => edge.source);
  const behind = graph.edges.filter((edge) => edge.source === selected).map((edge) => edge.target);
  return (
    <aside aria-label="the chosen box">
      {node ? (
        <>
          <div style={{ padding: "12px 16px", display: "grid", gap: "8px", justifyItems: "start" }}>
            {isTask && <State state={node.state ?? ""} />}
            {isTask ? <TaskId id={node.id} /> : <b>Track {node.id || "none"}</b>}
            {node.title !== node.id && <b>{node.title}</b>}
            {node.agent_id && (
              <span class="soft">
                {node.agent_id} holds it at generation {node.generation}
              </span>
            )}
            <div class="chips" style={{ gap: "6px" }}>
              <button type="button" class="btn" onClick={() => open(node)}>
                Open
              </button>
              {isTask && (
                <button
                  type="button"
                  class="btn"
                  onClick={() => filter({ around: node.id, track: undefined, view: undefined })}
                >
                  Look around it
                </button>
              )}
              {isTask &&
                state.data.value &&
                actsFor(state.data.value)
                  .slice(0, 3)
                  .map((name) => (
                    <button
                      key={name}
                      type="button"
                      class="btn"
                      onClick={() => (asked.value = { act: name, taskId: node.id })}
                    >
                      {ACTS[name].label}…
                    </button>
                  ))}
            </div>
          </div>
          <Links name="Waits for" ids={before} known={known} select={select} />
          <Links name="Waited for by" ids={behind} known={known} select={select} />
        </>
      ) : (
        <p class="soft" style={{ padding: "12px 16px" }}>
          Choose a box: click it, or go there by Tab and the arrow keys.
        </p>
      )}
      <details class="line" style={{ padding: "8px 0" }}>
        <summary class="soft" style={{ padding: "0 16px", cursor: "pointer", font: "var(--t-12)" }}>
          As a list
        </summary>
        <Links name="" ids={graph.nodes.map((each) => each.id)} known={known} select={select} />
      </details>
    </aside>
  );
}

function Links({
  name,
  ids,
  known,
  select,
}: {
  name: string;
  ids: string[];
  known: Map<string, GraphNode>;
  select: (id: string) => void;
}) {
  return (
    <div class={name ? "line" : ""} style={{ padding: "8px 0" }}>
      {name && (
        <small style={{ padding: "0 16px" }}>
          {ids.length ? `${name} ${ids.length}` : `${name} nothing`}
        </small>
      )}
      {ids.map((id) => (
        <div class="dep" key={id}>
          {known.get(id)?.state && <State state={known.get(id)!.state!} />}
          <button type="button" class="conn mono" onClick={() => select(id)}>
            {id || "no track"}
          </button>
        </div>
      ))}
    </div>
  );
}
