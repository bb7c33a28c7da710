// The picture of the agents' timeline: rows of bars on a canvas, drawn as far as they can be seen.

import { useEffect, useRef, useState } from "preact/hooks";
import type { ClaimSpan } from "../api";
import { clock, many, span, words } from "../format";
import type { Row } from "../lanes";
import { filter, go, to } from "../router";
import { type Look, Mark } from "../ui";

const ROW = 30;
/** How much room names take: less where there is little. */
const namesOf = (wide: number) => (wide < 600 ? 96 : 148);
const MOST_SPANS = 200;
const AXIS = 26;

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
  for (const name of ["line", "ink", "soft", "faint", "card", "inset", "accent"])
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

export function Timeline({
  rows,
  start,
  end,
  fixed,
  turn,
}: {
  rows: Row[];
  start: number;
  end: number;
  fixed: boolean;
  /** Folds a group, or unfolds it. */
  turn: (key: string) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const hits = useRef<Hit[]>([]);
  const [over, setOver] = useState<{ x: number; y: number; span: ClaimSpan } | null>(null);
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const [size, setSize] = useState(0);
  const height = Math.min(rows.length * ROW, Math.max(240, innerHeight - 300));
  const draw = () => {
    if (canvas.current && box.current)
      hits.current = paint(canvas.current, box.current, rows, start, end, height, drag);
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
    const names = namesOf(rect.width);
    return start + (Math.max(0, x - rect.left - names) / (rect.width - names)) * (end - start);
  };
  /** A tap or click on the name of a group folds it. */
  const turned = (event: MouseEvent, touch = false): boolean => {
    const { left, top, width } = canvas.current!.getBoundingClientRect();
    const y = event.clientY - top - AXIS + box.current!.scrollTop;
    const row = event.clientX - left < namesOf(width) && rows[Math.floor(y / ROW)];
    if (!row || row.kind !== "group" || event.clientY - top < AXIS) return false;
    if (touch === ((event as PointerEvent).pointerType === "touch")) turn(row.key);
    return true;
  };
  const move = (event: PointerEvent) => {
    if (drag) return setDrag([drag[0], event.clientX]);
    const hit = find(event);
    setOver(hit ? { x: event.clientX, y: event.clientY, span: hit.span } : null);
  };
  const up = (event: PointerEvent) => {
    const chosen = drag;
    setDrag(null);
    if (turned(event)) return;
    if (!chosen || event.pointerType === "touch") return;
    const [a, b] = [timeAt(Math.min(...chosen)), timeAt(Math.max(...chosen))];
    if (Math.abs(chosen[1] - chosen[0]) > 8 && b - a > 1000)
      filter({ from: String(Math.round(a)), to: String(Math.round(b)) });
    else {
      const hit = find(event);
      if (hit) go(to("task", hit.span.task_id));
    }
  };
  const lanes = rows.filter((row) => row.kind === "lane").length;
  const groups = rows.length - lanes;
  const what = groups ? `${many(groups, "group")}, ${many(lanes, "line")}` : many(lanes, "agent");
  const said = `${what} from ${clock(start, end)} to ${fixed ? clock(end, end) : "now"}; the same is listed below`;
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
      {groups > 0 && <Names rows={rows} turn={turn} />}
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
          if (turned(event, true)) return;
          const hit = find(event);
          if (hit && !drag && (event as unknown as PointerEvent).pointerType === "touch")
            go(to("task", hit.span.task_id));
        }}
      />
      <div style={{ height: `${Math.max(0, rows.length * ROW - height)}px` }} />
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
            {over.span.user_id && over.span.user_id !== over.span.agent_id && (
              <> ({over.span.user_id})</>
            )}
            <br />
            <small>{told(over.span, end)}</small>
          </span>
        </div>
      )}
    </div>
  );
}

/** The names of the groups as buttons: for the keyboard, and for those who do not see the canvas,
 * which lies above them and shows the same. */
function Names({ rows, turn }: { rows: Row[]; turn: (key: string) => void }) {
  return (
    <>
      {rows.map(
        (row, at) =>
          row.kind === "group" && (
            <button
              key={row.key}
              type="button"
              class="group-name"
              style={{ top: `${AXIS + at * ROW}px`, width: "96px", height: `${ROW}px` }}
              aria-expanded={!row.folded}
              aria-label={`${row.label}: ${row.sum}`}
              onClick={() => turn(row.key)}
            />
          ),
      )}
    </>
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
  rows: Row[],
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
  const names = namesOf(wide);
  const x = (time: number) => names + ((time - start) / (end - start)) * (wide - names - 12);
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
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW));
  for (let at = first; at < last; at++) {
    const row = rows[at]!;
    const y = AXIS + at * ROW - top;
    if (row.kind === "group") {
      pen.fillStyle = ink.inset!;
      pen.fillRect(0, y, wide, ROW);
    }
    pen.strokeStyle = ink.line!;
    pen.beginPath();
    pen.moveTo(0, y + ROW - 0.5);
    pen.lineTo(wide, y + ROW - 0.5);
    pen.stroke();
    pen.fillStyle = row.open ? ink.ink! : ink.soft!;
    pen.font = `${row.kind === "group" ? 600 : row.open ? 500 : 400} 12px ${face}`;
    const indent = row.kind === "group" ? 16 : row.inGroup ? 30 : 16;
    const sign = row.kind === "group" ? (row.folded ? "▸ " : "▾ ") : "";
    pen.fillText(fit(pen, sign + row.label, names - indent - 12), indent, y + ROW / 2);
    if (row.kind === "group") {
      pen.font = `400 12px ${face}`;
      pen.fillStyle = ink.soft!;
      if (!row.folded) pen.fillText(row.sum, names + 4, y + ROW / 2);
    }
    for (const each of row.spans.slice(-MOST_SPANS)) {
      const left = Math.max(names, each.start === null ? names : x(Date.parse(each.start)));
      const right = Math.min(wide - 12, each.end === null ? x(end) : x(Date.parse(each.end)));
      if (right < names || left > wide - 12) continue;
      hits.push({ left, right, row: y - AXIS, span: each });
      bar(pen, ink, each, left, Math.max(right, left + 2), y, row.kind === "lane" ? mono : "");
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
  const whole = each.task_id;
  // The number says more than the first letters of a name that does not fit.
  const short = /^[A-Za-z]+-\d+(?=-)/.exec(whole)?.[0] ?? whole;
  const text = pen.measureText(whole).width <= wide - 24 ? whole : short;
  pen.fillText(fit(pen, text, wide - 24), left + 6, y + ROW / 2 - 0.5);
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

