// All projects: where one begins, and which of them needs somebody.

import { useEffect, useState } from "preact/hooks";
import type { Overview } from "../api";
import { Problem, read } from "../client";
import { count, many } from "../format";
import { go, pathOf } from "../router";
import { learnProjects, projects } from "../state";
import { Empty, Failed, lookOf, Mark, Skeleton } from "../ui";

const MOST_READ = 24;

export function ProjectsScreen() {
  const [problem, setProblem] = useState<Problem>();
  const told = projects.value;
  useEffect(() => {
    learnProjects().catch((error) => setProblem(error as Problem));
  }, []);
  useEffect(() => {
    if (told?.projects.length !== 1) return;
    const { tenant_id, project_id } = told.projects[0]!;
    go(pathOf(tenant_id, project_id), { replace: true });
  }, [told]);
  return (
    <main class="narrow">
      <div class="title">
        <h1>Projects</h1>
      </div>
      {problem && <Failed problem={problem} />}
      {!told && !problem && <Skeleton />}
      {told?.projects.length === 0 && (
        <div class="card">
          <Empty title="There is no project yet" type={["genlock", "plan", "import", "plan.yaml"]}>
            A project begins with its first task. Write a plan and import it.
          </Empty>
        </div>
      )}
      <div style={{ display: "grid", gap: "12px" }}>
        {told?.projects.map(({ tenant_id, project_id }, at) => (
          <Project
            key={`${tenant_id}/${project_id}`}
            tenant={tenant_id}
            project={project_id}
            look={at < MOST_READ}
          />
        ))}
      </div>
    </main>
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

function Project({ tenant, project, look }: { tenant: string; project: string; look: boolean }) {
  const [told, setTold] = useState<Overview>();
  useEffect(() => {
    if (look)
      read("get_overview", { limit: 1 }, { scope: { tenant, project } }).then(setTold, () => {});
  }, []);
  const needs = told ? Object.values(told.needs_counts).reduce((sum, n) => sum + n, 0) : 0;
  return (
    <a
      class="card"
      href={pathOf(tenant, project)}
      style={{ padding: "12px 16px", display: "grid", gap: "8px" }}
    >
      <span class="row">
        <b>{project}</b>
        {tenant !== "default" && <span class="faint">{tenant}</span>}
        <span class="grow" />
        {told && (
          <small>
            {count(told.states.COMPLETED ?? 0)}/{count(told.total)} · {many(told.claims, "claim")}
          </small>
        )}
        {needs > 0 && (
          <span class="st stuck">
            <Mark look="stuck" />
            {needs} for you
          </span>
        )}
      </span>
      <span class="stack" aria-hidden="true">
        {told &&
          ORDER.filter((state) => told.states[state]).map((state) => (
            <i key={state} class={lookOf(state)} style={{ flex: told.states[state]! }} />
          ))}
      </span>
    </a>
  );
}
