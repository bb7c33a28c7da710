// The frame around every screen: project, search, connection, what waits for a person, keys.

import { useEffect, useRef } from "preact/hooks";
import { now, signedOut } from "./client";
import { useRead, anything } from "./data";
import { helpShown, signInPath } from "./dialogs";
import { clock, ZONE } from "./format";
import { again, connection, lostAt } from "./live";
import { paletteShown } from "./palette";
import { pathOf, place, to } from "./router";
import { mayAct, needs, projects, who } from "./state";
import { Mark } from "./ui";

export const SCREENS: [screen: string, name: string, icon: string][] = [
  ["", "Overview", "M3 11h6V3H3zM11 15h6V9h-6zM3 17h6v-4H3zM11 3v4h6V3z"],
  ["tasks", "Tasks", "M3 5h2M8 5h9M3 10h2M8 10h9M3 15h2M8 15h9"],
  ["agents", "Agents", "M3 5h7M8 10h8M5 15h6"],
  ["graph", "Graph", "M3 8h4v4H3zM13 3h4v4h-4zM13 13h4v4h-4zM7 10h3M10 10V5h3M10 10v5h3"],
  ["history", "History", "M10 5v5l3 2M3 10a7 7 0 1 0 2-5L3 7M3 3v4h4"],
  ["settings", "Settings", "M3 6h9M15 6h2M3 14h2M8 14h9M12 4v4M5 12v4"],
];

function Logo() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="var(--accent)" />
      <path
        d="M22 11.5A7.5 7.5 0 1 0 23.5 16H17"
        fill="none"
        stroke="var(--on-accent)"
        stroke-width="3.4"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}

function Icon({ path }: { path: string }) {
  return (
    <svg
      viewBox="0 0 20 20"
      fill="none"
      stroke="currentColor"
      stroke-width="1.6"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      <path d={path} />
    </svg>
  );
}

function current(screen: string): "page" | undefined {
  const here = place.value.screen === "task" ? "tasks" : place.value.screen;
  return here === screen ? "page" : undefined;
}

export function Top() {
  return (
    <header class="top">
      <a class="brand" href={to("")} aria-label="genlock, overview">
        <Logo />
        <span class="wide">genlock</span>
      </a>
      <Switch />
      <nav aria-label="screens">
        {SCREENS.map(([screen, name]) => (
          <a key={screen} href={to(screen)} aria-current={current(screen)}>
            {name}
            {screen === "" && needs.value > 0 && <Needs />}
          </a>
        ))}
      </nav>
      <button type="button" class="find" onClick={() => (paletteShown.value = true)}>
        Search tasks, agents…
        <kbd>/</kbd>
      </button>
      <Conn />
      <button
        type="button"
        class="icon small"
        aria-label="search, go to and act"
        onClick={() => (paletteShown.value = true)}
      >
        <Icon path="M9 15a6 6 0 1 0 0-12 6 6 0 0 0 0 12ZM13.5 13.5 17 17" />
      </button>
      <button
        type="button"
        class="icon wide"
        aria-label="keys"
        title="keys (?)"
        onClick={() => (helpShown.value = true)}
      >
        ?
      </button>
    </header>
  );
}

function Needs() {
  return (
    <span class="bubble" title="waiting for a person">
      {needs.value}
      <span class="hidden"> waiting for a person</span>
    </span>
  );
}

function Switch() {
  const { tenant, project } = place.value;
  const all = projects.value?.projects ?? [];
  const menu = useRef<HTMLDetailsElement>(null);
  const several = new Set(all.map((each) => each.tenant_id)).size > 1;
  useEffect(() => {
    if (menu.current) menu.current.open = false;
  }, [tenant, project]);
  useEffect(() => {
    const shut = (event: Event) => {
      if (menu.current?.open && !menu.current.contains(event.target as Node))
        menu.current.open = false;
    };
    addEventListener("pointerdown", shut);
    return () => removeEventListener("pointerdown", shut);
  }, []);
  return (
    <details class="switch" ref={menu}>
      <summary aria-label={`project ${project}; choose another`}>
        <span class="cut">
          {tenant !== "default" && <>{tenant} / </>}
          <b>{project}</b>
        </span>
        <span aria-hidden="true">▾</span>
      </summary>
      <div class="menu">
        {all.map((each) => (
          <a
            key={`${each.tenant_id}/${each.project_id}`}
            href={pathOf(each.tenant_id, each.project_id)}
            aria-current={
              each.tenant_id === tenant && each.project_id === project ? "true" : undefined
            }
          >
            {several && <span class="faint">{each.tenant_id} /</span>}
            {each.project_id}
          </a>
        ))}
        <a href="/">All projects</a>
      </div>
    </details>
  );
}

function Conn() {
  const { state, since } = connection.value;
  const at = clock(now.value, now.value);
  const words = {
    connecting: "connecting",
    live: `live ${at}`,
    "catching up": "catching up",
    away: `away since ${clock(since, Date.now())}`,
    "signed out": "signed out",
    refused: "no stream",
  }[state];
  const look =
    state === "live"
      ? "done"
      : state === "connecting" || state === "catching up"
        ? "moving"
        : "stuck";
  return (
    <button
      type="button"
      class={`conn ${look}`}
      title={`times are ${ZONE}`}
      onClick={again}
      aria-label={`connection: ${words}`}
    >
      <svg viewBox="0 0 12 12" class={`g ${look}`} aria-hidden="true">
        {look === "done" ? (
          <circle cx="6" cy="6" r="5" fill="currentColor" />
        ) : (
          <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="2" />
        )}
      </svg>
      <span>{words}</span>
    </button>
  );
}

/** What is the matter with what one sees, if something is. */
export function Notice() {
  const { state, since, why } = connection.value;
  if (signedOut.value || state === "signed out")
    return (
      <div class="bar-note stuck" role="alert">
        <Mark look="stuck" />
        <span>The sign-in is over. What you see was known at {clock(since, Date.now())}.</span>
        <a class="btn go" href={signInPath()}>
          Sign in again
        </a>
      </div>
    );
  if (state === "away" && now.value && Date.now() - since > 1500)
    return (
      <div class="bar-note stuck" role="status">
        <Mark look="stuck" />
        <span>
          The service has not answered since {clock(since, Date.now())}. What you see is from then.
          The page keeps trying.
        </span>
        <button type="button" class="btn" onClick={again}>
          Try now
        </button>
      </div>
    );
  if (state === "refused")
    return (
      <div class="bar-note stuck" role="status">
        <Mark look="stuck" />
        <span>
          Nothing here changes by itself: {why || "the service gives no stream of this project"}.
        </span>
      </div>
    );
  if (lostAt.value)
    return (
      <div class="bar-note moving" role="status">
        <Mark look="moving" />
        <span>
          At {clock(lostAt.value, Date.now())} the service no longer knew how far this page had
          read: its store was restored or its history purged. Everything here was read afresh; some
          changes may not have been shown.
        </span>
        <button type="button" class="btn" onClick={() => (lostAt.value = 0)}>
          I have read it
        </button>
      </div>
    );
  return null;
}

/** All screens again, within reach of a thumb. */
export function Tabs() {
  return (
    <nav class="tabs" aria-label="screens">
      {SCREENS.map(([screen, name, icon]) => (
        <a key={screen} href={to(screen)} aria-current={current(screen)}>
          <Icon path={icon} />
          {screen === "" ? "Now" : name}
          {screen === "" && needs.value > 0 && <Needs />}
        </a>
      ))}
    </nav>
  );
}

/** The overview, wherever one is: its count of what waits for a person is in the navigation. */
export function useNeeds() {
  const overview = useRead(
    "get_overview",
    { limit: 100 },
    { concerns: anything, pause: 1000, every: 15_000, when: Boolean(place.value.project) },
  );
  const told = overview.data.value;
  useEffect(() => {
    needs.value = told ? Object.values(told.needs_counts).reduce((sum, n) => sum + n, 0) : 0;
  }, [told]);
  return overview;
}

export function Who() {
  if (who.value === null) return null;
  const { name, role } = who.value;
  return (
    <span>
      {name ? <b>{name}</b> : "you"}, {mayAct.value ? "signed in to act" : `looking (${role})`}
    </span>
  );
}
