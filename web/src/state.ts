// Who looks, and what they have chosen about the page.

import { computed, effect, signal } from "@preact/signals";
import { send } from "./client";

export interface Who {
  name: string;
  role: string;
  tenant: string;
  projects: string;
  /** Does an act of this page get through, if it sends the proof? */
  acts: boolean;
  acts_for_seconds: number | null;
}
export interface Projects {
  version: string;
  store: string;
  whole_store: boolean;
  projects: { tenant_id: string; project_id: string }[];
  more: boolean;
}

export const who = signal<Who | null>(null);
export const projects = signal<Projects | null>(null);

let ends = 0;

export async function learnWho(): Promise<void> {
  const told = (await send("/sign-in/who")) as Who;
  who.value = told;
  clearTimeout(ends);
  // A sign-in to act that nobody has renewed by then is over, and the page offers no more acts.
  if (told.acts_for_seconds !== null)
    ends = setTimeout(
      () => learnWho().catch(() => {}),
      told.acts_for_seconds * 1000 + 500,
    ) as unknown as number;
}

export async function learnProjects(): Promise<void> {
  projects.value = (await send("/projects")) as Projects;
}

export const mayAct = computed(() => who.value?.acts ?? false);

function remembered(key: string, usual: string): ReturnType<typeof signal<string>> {
  let begun = usual;
  try {
    begun = localStorage.getItem(`genlock.${key}`) ?? usual;
  } catch {
    // A browser that keeps nothing shows what is usual.
  }
  const found = signal<string>(begun);
  effect(() => {
    const value = found.value ?? usual;
    try {
      localStorage.setItem(`genlock.${key}`, value);
    } catch {
      // It lasts as long as the page.
    }
  });
  return found;
}

export const theme = remembered("theme", "system");
effect(() => {
  document.documentElement.style.colorScheme =
    theme.value === "system" ? "light dark" : theme.value!;
});

/** How many things wait for a person: in the title, the icon and the navigation. */
export const needs = signal(0);
