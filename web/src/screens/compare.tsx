// A refused result beside the one that won: what each says, and what to do with the refused one.

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { ReviewInfo, TaskResult } from "../api";
import { Problem, read } from "../client";
import { useRead } from "../data";
import { asked, signInPath } from "../dialogs";
import { diff, size, words } from "../format";
import { mayAct } from "../state";
import { Ago, Dialog, Empty, Failed, Mark, Skeleton } from "../ui";

export const compared = signal<{ taskId: string; refusedId: string } | null>(null);

const MOST_SHOWN = 256 * 1024;
/** A result's text; null if there is none, undefined while it comes. */
type Text = string | Problem | null | undefined;

function textOf(data: unknown): string {
  return typeof data === "string" ? data : JSON.stringify(data, null, 2);
}

/** The data of a result, fetched if it is large. Too large a one is not shown: the command is. */
export function useResultText(
  taskId: string,
  result: TaskResult | ReviewInfo | null | undefined,
): Text {
  const [text, setText] = useState<Text>();
  useEffect(() => {
    if (!result) return setText(null);
    if (result.size > MOST_SHOWN) {
      const type = ["genlock", "history", taskId, "--json"];
      return setText(
        new Problem(413, "LARGE", `it has ${size(result.size)}, too much to show here`, [type]),
      );
    }
    if (!result.payload) return setText(textOf(result.result_data));
    let ended = false;
    read("read_result", { task_id: taskId, digest: result.digest }).then(
      (data) => ended || setText(textOf(data)),
      (error) => ended || setText(error as Problem),
    );
    return () => {
      ended = true;
    };
  }, [taskId, result?.generation, result?.digest]);
  return text;
}

export function CompareDialog() {
  const now = compared.value;
  return now && <Compare key={now.refusedId} {...now} />;
}

function Compare({ taskId, refusedId }: { taskId: string; refusedId: string }) {
  const close = () => (compared.value = null);
  const task = useRead(
    "get_task_state",
    { task_id: taskId },
    { concerns: (rows) => rows.has(taskId) },
  );
  const kept = useRead("list_refused_results", { task_id: taskId, include_settled: true });
  const refused = kept.data.value?.find((each) => each.id === refusedId);
  const state = task.data.value;
  const left = useResultText(taskId, refused);
  const right = useResultText(taskId, state?.result);
  const problem = task.error.value ?? kept.error.value;
  const finished = state?.state === "COMPLETED" || state?.state === "CANCELLED";
  const ask = (act: "adopt" | "discard") => {
    close();
    asked.value = { act, taskId, refusedId };
  };
  return (
    <Dialog title={`refused result of ${taskId}`} close={close} wide>
      <header>
        <Mark look="refused" />
        <h2>
          <span class="mono">{taskId}</span>: a refused result
        </h2>
      </header>
      <div class="inner">
        {problem && <Failed problem={problem} />}
        {!problem && (!state || !kept.data.value) && <Skeleton />}
        {kept.data.value && !refused && <Empty title="It is not kept any more" />}
        {state && refused && (
          <>
            <p>
              {refused.agent_id || refused.session_id} handed it in at generation{" "}
              {refused.generation}, <Ago at={refused.submitted_at} />. It was refused:{" "}
              {words(refused.rejection_reason ?? "an old generation")}.{" "}
              {state.result
                ? `The result that counts is ${state.result.agent_id}'s, of generation ${state.result.generation}.`
                : state.holder
                  ? `No result counts yet: ${state.holder.agent} works on it at generation ${state.generation}.`
                  : `No result counts yet; the task is at generation ${state.generation}.`}
            </p>
            <Sides left={left} right={right} refused={refused} counts={state.result} />
          </>
        )}
      </div>
      <div class="foot">
        <button type="button" class="btn" onClick={close}>
          Close
        </button>
        {refused?.state === "KEPT" && !mayAct.value && (
          <a class="btn go" href={signInPath()}>
            Sign in to act
          </a>
        )}
        {refused?.state === "KEPT" && mayAct.value && (
          <>
            <button type="button" class="btn" onClick={() => ask("discard")}>
              Discard…
            </button>
            {!finished && (
              <button type="button" class="btn go" onClick={() => ask("adopt")}>
                Adopt…
              </button>
            )}
          </>
        )}
      </div>
    </Dialog>
  );
}

function Sides({
  left,
  right,
  refused,
  counts,
}: {
  left: Text;
  right: Text;
  refused: TaskResult;
  counts: TaskResult | null;
}) {
  if (left === undefined || right === undefined) return <Skeleton />;
  if (left instanceof Problem) return <Failed problem={left} />;
  if (right instanceof Problem) return <Failed problem={right} />;
  if (counts !== null && refused.digest === counts.digest)
    return <p>Both have the same content.</p>;
  const lines = diff(left ?? "", right ?? "");
  return (
    <div class="sides" tabIndex={0} role="group" aria-label="both results side by side">
      <div class="head">
        Refused · gen {refused.generation} · {size(refused.size)}
      </div>
      <div class="head">
        {counts
          ? `Counts · gen ${counts.generation} · ${size(counts.size)}`
          : "No result counts yet"}
      </div>
      {lines.map((line, at) => [
        <div
          key={`l${at}`}
          class={line.left === null ? "void" : line.right !== line.left && counts ? "minus" : ""}
        >
          {line.left}
        </div>,
        <div
          key={`r${at}`}
          class={line.right === null ? "void" : line.left !== line.right ? "plus" : ""}
        >
          {line.right}
        </div>,
      ])}
    </div>
  );
}
