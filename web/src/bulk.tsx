// One act on many tasks: those that were chosen, or all that match the filters. The service first
// says what would become of each; nothing is done before that was shown.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ActsResult } from "./api";
import { act, forgetProof, Problem, proof, read } from "./client";
import { refusedBy, say, signInPath } from "./dialogs";
import { count, many } from "./format";
import { learnWho, mayAct } from "./state";
import { Dialog, Mark, Skeleton, wordOf } from "./ui";

/** The filters of a list, and the tasks that were chosen of it; none: all that match. */
export interface Chosen {
  given: Record<string, unknown>;
  ids: string[];
}
export const acting = signal<Chosen | null>(null);

const NAMES = ["hold", "reopen", "release", "reset", "cancel"];
const SHOWN = 12;

export function BulkDialog() {
  return acting.value && <Bulk {...acting.value} />;
}

function Bulk({ given, ids }: Chosen) {
  const close = () => (acting.value = null);
  const [name, setName] = useState("hold");
  const [reason, setReason] = useState("");
  const [force, setForce] = useState(false);
  const [told, setTold] = useState<ActsResult>();
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const operation = useRef(crypto.randomUUID());
  const wanted = () => {
    const { sort: _, ...filters } = given;
    const asks = name === "hold" || name === "cancel";
    return {
      ...filters,
      act: name,
      task_ids: ids.length ? ids : undefined,
      reason: asks && reason ? reason : undefined,
      take_over: force || undefined,
    };
  };
  const failed = (error: unknown) => {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) {
      forgetProof();
      void learnWho();
    }
    setProblem(error);
  };
  useEffect(() => {
    if (!mayAct.value) return;
    const abort = new AbortController();
    setTold(undefined);
    setProblem(undefined);
    read("batch_act", { ...wanted(), dry_run: true } as never, {
      abort: abort.signal,
      headers: proof(),
    }).then(setTold, (error) => abort.signal.aborted || failed(error));
    return () => abort.abort();
  }, [name, force, mayAct.value]);
  const go = async () => {
    setBusy(true);
    setProblem(undefined);
    try {
      const done = await act(
        "batch_act",
        { ...wanted(), dry_run: false } as never,
        operation.current,
      );
      say(
        `${name}: ${many(done.done, "task")} done, ${count(done.unchanged)} as before, ${count(done.refused)} refused.`,
        done.refused ? "stuck" : "done",
      );
      close();
    } catch (error) {
      failed(error);
      operation.current = crypto.randomUUID();
      setBusy(false);
    }
  };
  return (
    <Dialog title="Act on many tasks" close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void go();
        }}
      >
        <header>
          <h2>Act on {ids.length ? many(ids.length, "chosen task") : "all that match"}</h2>
        </header>
        <div class="inner">
          <div class="row">
            <label>
              Act{" "}
              <select
                class="field"
                value={name}
                onChange={(event) => setName(event.currentTarget.value)}
              >
                {NAMES.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            </label>
            {(name === "hold" || name === "cancel") && (
              <input
                class="field grow"
                aria-label="reason, for the history"
                placeholder="reason, for the history"
                maxLength={1000}
                value={reason}
                onInput={(event) => setReason(event.currentTarget.value)}
              />
            )}
          </div>
          {name !== "hold" && name !== "reopen" && (
            <label class="row">
              <input
                type="checkbox"
                checked={force}
                onChange={(event) => setForce(event.currentTarget.checked)}
              />
              Also take live claims away from their holders
            </label>
          )}
          {mayAct.value && !told && !problem && <Skeleton lines={4} />}
          {told && <Would told={told} />}
          {problem && refusedBy(problem)}
        </div>
        <div class="foot">
          <button type="button" class="btn" onClick={close}>
            Do nothing
          </button>
          {mayAct.value ? (
            <button type="submit" class="btn warn" disabled={busy || !told?.done}>
              {told ? `${name[0]!.toUpperCase()}${name.slice(1)} ${many(told.done, "task")}` : "…"}
            </button>
          ) : (
            <a class="btn go" href={signInPath()}>
              Sign in to act
            </a>
          )}
        </div>
      </form>
    </Dialog>
  );
}

/** What would happen, to whom. */
function Would({ told }: { told: ActsResult }) {
  const first = [...told.outcomes].sort(
    (a, b) => Number(b.superseded !== null) - Number(a.superseded !== null),
  );
  const taken = told.outcomes.filter(
    (each) => each.superseded !== null && each.verdict !== null,
  ).length;
  return (
    <>
      <p>
        Of {many(told.matched, "task")} {count(told.done)} would change, {count(told.unchanged)}{" "}
        {told.unchanged === 1 ? "is" : "are"} so already, and {count(told.refused)} would be
        refused.
        {taken > 0 && ` ${many(taken, "claim")} would be superseded.`}
      </p>
      <ul class="happens stuck" aria-label="what would happen">
        {first.slice(0, SHOWN).map((each) => (
          <li key={each.task_id} class="row">
            {each.verdict === null && <Mark look="refused" />}
            <code>{each.task_id}</code>
            <span class="cut">
              {each.verdict === null
                ? each.why
                : `${each.state ? wordOf(each.state) : ""}${each.superseded ? `; ${each.superseded.agent}'s claim is superseded` : ""}`}
            </span>
          </li>
        ))}
        {told.outcomes.length > SHOWN && <li>and {count(told.matched - SHOWN)} more</li>}
      </ul>
    </>
  );
}
