// Times, sizes and commands as people read them. Pure functions: everything comes in as an argument.

/** A length of time in at most two units, as the service says it: 45s, 4m 30s, 2h 5m, 3d 4h. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole}s`;
  const units: [number, string, number, string][] = [
    [86400, "d", 3600, "h"],
    [3600, "h", 60, "m"],
    [60, "m", 1, "s"],
  ];
  for (const [unit, name, smaller, below] of units) {
    if (whole < unit) continue;
    const rest = Math.floor((whole % unit) / smaller);
    return `${Math.floor(whole / unit)}${name}${rest ? ` ${rest}${below}` : ""}`;
  }
  return "";
}

/** A countdown: 0:38, 3:41, 1:02:00. */
export function countdown(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  const two = (n: number) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** `12s ago`, `in 4m 30s`, `now`. */
export function ago(when: string | number, now: number): string {
  const seconds = (now - (typeof when === "number" ? when : Date.parse(when))) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const WHOLE = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "long",
  hourCycle: "h23",
});

/** The local time of day, with the day if that is not today. */
export function clock(when: string | number, now: number): string {
  const at = new Date(when);
  const today = at.toDateString() === new Date(now).toDateString();
  return today ? CLOCK.format(at) : `${DAY.format(at)} ${CLOCK.format(at)}`;
}

/** Day, local time and zone. */
export function whole(when: string | number): string {
  return WHOLE.format(new Date(when));
}

/** The zone that times are shown in. */
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Bytes in a unit that leaves a short number. */
export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} bytes`;
  const units = ["KB", "MB", "GB"];
  let value = bytes / 1000;
  let at = 0;
  while (value >= 1000 && at < 2) {
    value /= 1000;
    at += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

/** A number with separators. */
export function count(n: number): string {
  return n.toLocaleString("en-US");
}

/** `1 task`, `3 tasks`. */
export function many(n: number, one: string, more = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : more}`;
}

/** A name on the wire as words: SESSION_SILENT is `session silent`. */
export function words(name: string): string {
  return name.toLowerCase().replaceAll("_", " ");
}

/** Words of a command as one types them into a shell. */
export function shell(command: readonly string[]): string {
  const safe = /^[\w@%+=:,./-]+$/;
  return command
    .map((word) => (safe.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`))
    .join(" ");
}

/** Lines of two texts side by side: which are only in one of them. */
export interface DiffLine {
  left: string | null;
  right: string | null;
}
const MOST_DIFF_LINES = 1500;

export function diff(left: string, right: string): DiffLine[] {
  const a = left.split("\n").slice(0, MOST_DIFF_LINES);
  const b = right.split("\n").slice(0, MOST_DIFF_LINES);
  // The longest common subsequence, from the end, in one row of numbers for each line.
  const rows = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      rows[i]![j] =
        a[i] === b[j] ? rows[i + 1]![j + 1]! + 1 : Math.max(rows[i + 1]![j]!, rows[i]![j + 1]!);
    }
  }
  const found: DiffLine[] = [];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j])
      found.push({ left: a[i++]!, right: b[j++]! });
    else if (j >= b.length || (i < a.length && rows[i + 1]![j]! >= rows[i]![j + 1]!))
      found.push({ left: a[i++]!, right: null });
    else found.push({ left: null, right: b[j++]! });
  }
  return paired(found);
}

/** Lines that were taken out beside those that came in their place. */
function paired(lines: DiffLine[]): DiffLine[] {
  const found: DiffLine[] = [];
  for (let at = 0; at < lines.length;) {
    const { left, right } = lines[at]!;
    if (left !== null && right !== null) {
      found.push(lines[at++]!);
      continue;
    }
    const [out, into]: [string[], string[]] = [[], []];
    for (; at < lines.length && (lines[at]!.left === null || lines[at]!.right === null); at++) {
      const line = lines[at]!;
      if (line.left !== null) out.push(line.left);
      else into.push(line.right!);
    }
    for (let row = 0; row < Math.max(out.length, into.length); row++)
      found.push({ left: out[row] ?? null, right: into[row] ?? null });
  }
  return found;
}

/** A text of the service with its times as one's own clock shows them. */
export function local(text: string, now: number): string {
  return text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (when) => clock(when, now));
}
