// The address is the state: which project, which screen, which task, which filters. Back works.

import { computed, signal } from "@preact/signals";

export interface Place {
  tenant: string;
  project: string;
  screen: string;
  /** What the screen is about: a task's id. */
  subject: string;
  query: URLSearchParams;
}

const address = signal(location.pathname + location.search);

export function parse(text: string): Place {
  const url = new URL(text, "http://here");
  const parts = url.pathname.split("/").slice(1).map(decode);
  const [p, tenant = "", project = "", screen = "", subject = ""] = parts;
  const query = url.searchParams;
  if (p !== "p") return { tenant: "", project: "", screen: "", subject: "", query };
  return { tenant, project, screen, subject, query };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const place = computed(() => parse(address.value));

/** The address of a screen of the present project. An empty filter is left out. */
export function to(
  screen: string,
  subject = "",
  query: Record<string, string | undefined> = {},
): string {
  const { tenant, project } = place.value;
  return pathOf(tenant, project, screen, subject, query);
}

export function pathOf(
  tenant: string,
  project: string,
  screen = "",
  subject = "",
  query: Record<string, string | undefined> = {},
): string {
  const parts = ["p", tenant, project, screen, subject].map(encodeURIComponent);
  while (parts.at(-1) === "") parts.pop();
  const kept = Object.entries(query).filter((pair): pair is [string, string] => Boolean(pair[1]));
  const asked = new URLSearchParams(kept).toString();
  return `/${parts.join("/")}${asked ? `?${asked}` : ""}`;
}

export function go(path: string, { replace = false } = {}): void {
  if (path === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  address.value = path;
  if (!replace) scrollTo(0, 0);
}

/** Changes filters in the address; undefined takes one out. */
export function filter(changes: Record<string, string | undefined>): void {
  const { tenant, project, screen, subject, query } = place.peek();
  go(pathOf(tenant, project, screen, subject, { ...Object.fromEntries(query), ...changes }), {
    replace: true,
  });
}

addEventListener("popstate", () => {
  address.value = location.pathname + location.search;
});

/** Links within the dashboard do not load the page again. */
addEventListener("click", (event) => {
  const link = (event.target as Element).closest?.("a[href^='/p/'], a[href='/']");
  if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
