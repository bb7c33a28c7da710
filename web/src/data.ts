// What a screen reads: loaded when the stream is there, again when something has changed, and kept
// while the service is away, with its age.

import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { type Answers, type Name, Problem, read, type Takes } from "./client";
import { onChange, whenLive } from "./live";
import type { Rows } from "./rows";
import { place } from "./router";

export interface Loaded<T> {
  data: Signal<T | undefined>;
  error: Signal<Problem | undefined>;
  /** When what is shown was read, by the local clock; 0: never. */
  at: Signal<number>;
  reload: () => void;
}

interface Options {
  /** Does this change concern it? Without it, none does but a reset. */
  concerns?: (rows: Rows, routine: boolean) => boolean;
  /** At least so long between two reads, in milliseconds. What took long is asked for less often. */
  pause?: number;
  /** It is also read again after so long without any change. */
  every?: number;
  /** Not read while false. */
  when?: boolean;
}

const TIMES = 8;

type Given<N extends Name> = Takes<N> & { task_id?: string; session_id?: string; key_id?: string };

/** An operation's answer, as it is now. */
export function useRead<N extends Name>(
  name: N,
  given: Given<N>,
  { concerns, pause = 400, every, when = true }: Options = {},
): Loaded<Answers<N>> {
  const { tenant, project } = place.value;
  const key = JSON.stringify([name, given, tenant, project, when]);
  const loaded = useMemo(() => {
    const data = signal<Answers<N> | undefined>(undefined);
    return {
      data,
      error: signal<Problem | undefined>(undefined),
      at: signal(0),
      reload: () => {},
    } as Loaded<Answers<N>>;
  }, [key]);
  useEffect(() => {
    if (!when) return;
    let ended = false;
    let running = false;
    let again = false;
    let timer = 0;
    let next = 0;
    const abort = new AbortController();
    const load = async () => {
      clearTimeout(timer);
      if (running) {
        again = true;
        return;
      }
      running = true;
      again = false;
      const began = performance.now();
      try {
        const data = await read(name, given, { scope: { tenant, project }, abort: abort.signal });
        if (ended) return;
        loaded.data.value = data;
        loaded.error.value = undefined;
        loaded.at.value = Date.now();
      } catch (error) {
        if (ended) return;
        if (!(error instanceof Problem)) throw error;
        loaded.error.value = error;
      } finally {
        running = false;
        const took = performance.now() - began;
        next = performance.now() + Math.max(pause, took * TIMES);
        const failed = loaded.error.peek();
        const retry = failed && (failed.status === 0 || failed.status >= 429) ? 3000 : 0;
        if (!ended && (again || retry || every)) soon(again ? 0 : retry || every!);
      }
    };
    const soon = (after = 0) => {
      clearTimeout(timer);
      timer = setTimeout(load, Math.max(after, next - performance.now(), 0)) as unknown as number;
    };
    loaded.reload = () => void load();
    const stop = onChange((rows, routine) => {
      if (rows === null || concerns?.(rows, routine)) soon();
    });
    void whenLive().then(() => (ended ? undefined : load()));
    return () => {
      ended = true;
      stop();
      clearTimeout(timer);
      abort.abort();
    };
  }, [key]);
  return loaded;
}

/** Whatever has changed concerns it, but renewals. */
export const anything = (_: Rows, routine: boolean) => !routine;
