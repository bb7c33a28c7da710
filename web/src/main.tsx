// The page: which screen is shown, and the keys that work everywhere.

import { render } from "preact";
import { useEffect } from "preact/hooks";
import { BulkDialog } from "./bulk";
import { keepProof, tick } from "./client";
import { ActDialog, Help, helpShown, keepSignIn, Toasts } from "./dialogs";
import { beginIcon } from "./icon";
import { begin } from "./live";
import { Palette, paletteShown, SCREEN_NAMES } from "./palette";
import { go, place, to } from "./router";
import { AgentsScreen } from "./screens/agents";
import { CompareDialog } from "./screens/compare";
import { GraphScreen } from "./screens/graph";
import { HistoryScreen } from "./screens/history";
import { OverviewScreen } from "./screens/overview";
import { ReviewDialog } from "./screens/review";
import { ProjectsScreen } from "./screens/projects";
import { SettingsScreen } from "./screens/settings";
import { TaskScreen } from "./screens/task";
import { TasksScreen } from "./screens/tasks";
import { Notice, Tabs, Top, useNeeds } from "./shell";
import { learnProjects, learnWho } from "./state";
import { Empty } from "./ui";
import "./style.css";

function Screen() {
  const overview = useNeeds();
  switch (place.value.screen) {
    case "":
      return <OverviewScreen overview={overview} />;
    case "tasks":
      return <TasksScreen />;
    case "task":
      return <TaskScreen />;
    case "agents":
      return <AgentsScreen />;
    case "graph":
      return <GraphScreen />;
    case "history":
      return <HistoryScreen />;
    case "settings":
      return <SettingsScreen />;
    default:
      return (
        <>
          <h1 class="hidden">No such screen</h1>
          <Empty title="There is no such screen">
            <a class="link" href={to("")}>
              To the overview
            </a>
          </Empty>
        </>
      );
  }
}

function App() {
  const { tenant, project } = place.value;
  useEffect(() => {
    document.querySelector("main")?.focus({ preventScroll: true });
  }, [place.value.screen, place.value.subject]);
  if (!project) return <ProjectsScreen />;
  return (
    <>
      <Top />
      <Notice />
      <main tabIndex={-1}>
        <Screen key={`${tenant}/${project}`} />
      </main>
      <Tabs />
      <Palette />
      <ActDialog />
      <BulkDialog />
      <CompareDialog />
      <ReviewDialog />
      <Help />
      <Toasts />
    </>
  );
}

/** Keys without a modifier work where nobody is typing. */
function press(event: KeyboardEvent): void {
  const { key } = event;
  if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === "k") {
    event.preventDefault();
    paletteShown.value = !paletteShown.value;
    return;
  }
  const typing = (event.target as Element).closest?.("input, select, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !place.peek().project) return;
  const step = { j: "next", k: "previous", ArrowDown: "next", ArrowUp: "previous" }[key];
  const { screen, subject } = place.peek();
  if (key === "/") paletteShown.value = true;
  else if (key === "?") helpShown.value = true;
  else if (screen === "tasks" && (key === "x" || key === "X" || key === "*"))
    dispatchEvent(
      new CustomEvent("step", { detail: { x: "choose", X: "through", "*": "all" }[key] }),
    );
  else if (step && screen === "tasks") dispatchEvent(new CustomEvent("step", { detail: step }));
  else if (key === "Enter" && screen === "tasks" && !(event.target as Element).closest("a, button"))
    dispatchEvent(new CustomEvent("step", { detail: "open" }));
  else if (key === "Escape" && screen === "task") history.back();
  else if (key === "g") go(to("graph", "", { around: subject || undefined }));
  else if (key === "r") dispatchEvent(new Event("take-in"));
  else if (/^[1-6]$/.test(key)) go(to(SCREEN_NAMES[Number(key) - 1]![0]));
  else return;
  event.preventDefault();
}

keepProof();
addEventListener("keydown", press);
setInterval(tick, 1000);
begin();
beginIcon();
keepSignIn();
learnWho().catch(() => {});
learnProjects().catch(() => {});
render(<App />, document.getElementById("app")!);
