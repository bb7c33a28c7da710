// One field to go anywhere and to act, by typing.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ACTS, type ActName, actsFor } from "./acts";
import type { TaskState } from "./api";
import { read } from "./client";
import { asked } from "./dialogs";
import { go, pathOf, place, to } from "./router";
import { projects } from "./state";
import { Dialog, Mark, State } from "./ui";
import type { ComponentChildren } from "preact";

export const paletteShown = signal(false);

interface Choice {
  key: string;
  label: ComponentChildren;
  hint?: string;
  run: () => void;
}

export const SCREEN_NAMES: [string, string][] = [
  ["", "Overview"],
  ["tasks", "Tasks"],
  ["agents", "Agents"],
  ["graph", "Graph"],
  ["history", "History"],
  ["settings", "Settings"],
];

const PAUSE_MS = 120;

export function Palette() {
  return paletteShown.value ? <Field /> : null;
}

function Field() {
  const [text, setText] = useState("");
  const [found, setFound] = useState<Choice[]>([]);
  const [at, setAt] = useState(0);
  const [open, setOpen] = useState<TaskState | null>(null);
  const list = useRef<HTMLUListElement>(null);
  const close = () => (paletteShown.value = false);
  const { screen, subject } = place.value;
  useEffect(() => {
    if (screen === "task") read("get_task_state", { task_id: subject }).then(setOpen, () => {});
  }, []);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(
      async () => setFound(await search(text.trim(), abort.signal).catch(() => [])),
      text ? PAUSE_MS : 0,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  const choices = [...acting(open, text), ...found, ...going(text)];
  const chosen = Math.min(at, choices.length - 1);
  useEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: "nearest" }), [chosen]);
  const run = (choice: Choice | undefined) => {
    if (!choice) return;
    close();
    choice.run();
  };
  return (
    <Dialog title="Search, go to, act" close={close} kind="palette">
      <input
        autofocus
        role="combobox"
        aria-expanded="true"
        aria-controls="choices"
        aria-activedescendant={choices[chosen] && `choice-${chosen}`}
        aria-label="search tasks and agents, go to a screen, or act"
        placeholder="A task, an agent, a screen, an act…"
        value={text}
        onInput={(event) => {
          setText((event.target as HTMLInputElement).value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          if (step) {
            event.preventDefault();
            setAt((chosen + step + choices.length) % Math.max(choices.length, 1));
          } else if (event.key === "Enter") {
            event.preventDefault();
            run(choices[chosen]);
          }
        }}
      />
      <ul id="choices" role="listbox" aria-label="choices" ref={list}>
        {choices.map((choice, index) => (
          <li
            key={choice.key}
            id={`choice-${index}`}
            role="option"
            aria-selected={index === chosen}
            onPointerMove={() => setAt(index)}
            onClick={() => run(choice)}
          >
            {choice.label}
            {choice.hint && <small class="cut">{choice.hint}</small>}
          </li>
        ))}
        {choices.length === 0 && <li class="soft">Nothing is called so.</li>}
      </ul>
    </Dialog>
  );
}

const matches = (name: string, text: string) =>
  name.toLowerCase().includes(text.trim().toLowerCase());

function acting(state: TaskState | null, text: string): Choice[] {
  if (state === null) return [];
  const { id } = state.task;
  return actsFor(state)
    .filter((name) => matches(`${ACTS[name].label} ${id}`, text))
    .map((name: ActName) => ({
      key: `act ${name}`,
      label: (
        <>
          <Mark look={ACTS[name].look} />
          <span>
            {ACTS[name].label} <span class="mono">{id}</span>…
          </span>
        </>
      ),
      run: () => (asked.value = { act: name, taskId: id }),
    }));
}

function going(text: string): Choice[] {
  const screens = SCREEN_NAMES.filter(([, name]) => matches(name, text)).map(([screen, name]) => ({
    key: `screen ${screen}`,
    label: <span>{name}</span>,
    hint: "screen",
    run: () => go(to(screen)),
  }));
  const others = (projects.value?.projects ?? [])
    .filter((each) => text && matches(`${each.tenant_id} / ${each.project_id}`, text))
    .slice(0, 8)
    .map((each) => ({
      key: `project ${each.tenant_id}/${each.project_id}`,
      label: <span>{each.project_id}</span>,
      hint: `project of ${each.tenant_id}`,
      run: () => go(pathOf(each.tenant_id, each.project_id)),
    }));
  return [...screens, ...others];
}

async function search(text: string, abort: AbortSignal): Promise<Choice[]> {
  if (!text) return [];
  const [tasks, agents] = await Promise.all([
    read("list_tasks", { text, limit: 12 }, { abort }),
    read("list_agents", {}, { abort }),
  ]);
  return [
    ...tasks.tasks.map((row) => ({
      key: `task ${row.id}`,
      label: (
        <>
          <State state={row.state} />
          <span class="mono">{row.id}</span>
        </>
      ),
      hint: row.title,
      run: () => go(to("task", row.id)),
    })),
    ...agents
      .filter((agent) => matches(agent.agent_id, text))
      .slice(0, 6)
      .map((agent) => ({
        key: `agent ${agent.agent_id} ${agent.session_id}`,
        label: <span>{agent.agent_id}</span>,
        hint: `agent, ${agent.status} on ${agent.tasks.join(", ") || "nothing"}`,
        run: () => go(to("tasks", "", { agent: agent.agent_id })),
      })),
  ];
}
