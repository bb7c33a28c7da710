// A result that waits for a review: what it says, why somebody has to look at it, and the two acts.

import type { ReviewInfo } from "../api";
import { now, Problem } from "../client";
import { useRead } from "../data";
import { asked, reviewed, signInPath } from "../dialogs";
import { local, size } from "../format";
import { to } from "../router";
import { mayAct } from "../state";
import { Ago, Dialog, Empty, Failed, Mark, Skeleton, State, TaskId } from "../ui";
import { useResultText } from "./compare";

/** What a reviewer has to know, and the result itself. */
export function Waiting({ review }: { review: ReviewInfo }) {
  const text = useResultText(review.task_id, review);
  return (
    <>
      {review.missing_evaluators.length > 0 && (
        <p class="soft">Not passed yet: {review.missing_evaluators.join(", ")}.</p>
      )}
      {Object.entries(review.evaluations).map(([name, said]) => (
        <p key={name} class={`st ${said.passed ? "done" : "refused"}`}>
          <Mark look={said.passed ? "done" : "refused"} />
          {name} {said.passed ? "has passed it" : "has not passed it"}
          {said.note && `: ${said.note}`}
        </p>
      ))}
      {review.inputs_changed.length > 0 && (
        <p class="st stuck">
          <Mark look="stuck" /> Made from older inputs: {review.inputs_changed.join(", ")} changed
          since.
        </p>
      )}
      {(review.work_product_ref || review.reference) && (
        <p>
          <span class="soft">Work product </span>
          <code>{[review.work_product_ref, review.reference].filter(Boolean).join(", ")}</code>
        </p>
      )}
      {text === undefined && <Skeleton />}
      {text instanceof Problem && <Failed problem={text} />}
      {typeof text === "string" && <pre tabIndex={0}>{text}</pre>}
      <small class="mono faint">digest {review.digest.slice(0, 12)}</small>
    </>
  );
}

/** Both acts, about the very result that is on the screen. */
export function Decide({ review, before }: { review: ReviewInfo; before?: () => void }) {
  const ask = (act: "approve" | "reject") => {
    before?.();
    asked.value = { act, taskId: review.task_id, review };
  };
  if (!mayAct.value)
    return (
      <a class="btn go" href={signInPath()}>
        Sign in to act
      </a>
    );
  return (
    <>
      <button type="button" class="btn" onClick={() => ask("reject")}>
        Reject…
      </button>
      <button type="button" class="btn go" onClick={() => ask("approve")}>
        Approve…
      </button>
    </>
  );
}

export function Author({ review }: { review: ReviewInfo }) {
  return (
    <>
      gen {review.generation} · {review.agent_id || review.session_id}
      {review.agent_role && ` as ${review.agent_role}`} · {size(review.size)} ·{" "}
      <Ago at={review.submitted_at} />
    </>
  );
}

export function ReviewDialog() {
  return reviewed.value && <Review key={reviewed.value} taskId={reviewed.value} />;
}

function Review({ taskId }: { taskId: string }) {
  const close = () => (reviewed.value = null);
  const concerns = (rows: Map<string, unknown>) => rows.has(taskId);
  const task = useRead("get_task_state", { task_id: taskId }, { concerns });
  const waits = task.data.value?.state === "IN_REVIEW";
  const read = useRead("get_review", { task_id: taskId }, { concerns, when: waits });
  const explained = useRead("explain", { task_id: taskId }, { when: waits });
  const state = task.data.value;
  const review = read.data.value;
  const because = explained.data.value?.because ?? [];
  const problem = task.error.value ?? read.error.value;
  return (
    <Dialog title={`review of ${taskId}`} close={close} wide>
      <header>
        <Mark look="stuck" shape="half" />
        <h2>
          <TaskId id={taskId} />: a result waits for a review
        </h2>
      </header>
      <div class="inner">
        {state && state.task.title && state.task.title !== taskId && (
          <p>
            <b>{state.task.title}</b>
          </p>
        )}
        {state && !waits && (
          <Empty title="Nothing waits for a review here any more">
            <span class="row">
              The task is <State state={state.state} /> at generation {state.generation}.{" "}
              <a class="link" href={to("task", taskId)} onClick={close}>
                Its page
              </a>
            </span>
          </Empty>
        )}
        {waits && review && (
          <>
            <small>
              <Author review={review} />
            </small>
            {because.length > 0 && (
              <p class="soft">Why: {local(because.join("; "), now.value)}.</p>
            )}
            <Waiting key={`${review.generation} ${review.digest}`} review={review} />
          </>
        )}
        {(!state || (waits && !review)) &&
          (problem ? <Failed problem={problem} /> : <Skeleton lines={5} />)}
      </div>
      <div class="foot">
        <button type="button" class="btn" onClick={close}>
          Close
        </button>
        {waits && review && <Decide review={review} before={close} />}
      </div>
    </Dialog>
  );
}
