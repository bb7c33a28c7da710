"""The engine: callers put commands into lanes, and lanes connect the core with the store.

The core decides, the store remembers, and the engine connects them. This essay explains which part
owns which state, what may be trusted when, and what happens when something fails. Read it before
you change anything in this package; `tests/engine/gated_store.py` lets a test stop or break every
store call.


The parts

    engine      chooses the lane of a project, and owns the lanes and the monitor
    lane        the thread: gathers a batch from its inbox, hands it over, answers the callers
    pipeline    decides a batch, commits it, and finishes it while the next one is decided
    batch       one round: load, decide in order, commit once
    claim_next  requests for a next task, and the waiters among them; offers are in `offers`
    reactions   the second commit: the commands that committed events cause
    recovery    repeats reactions that a crash may have cut off
    maintenance everything that a lane does besides its callers' commands

Each module's docstring has the details.


Ownership

A project belongs to one lane, by the hash of its tenant and project. A lane owns its inbox, its
waiters, its unfinished batches, the denials that are not written yet, and its counts. Only the
lane's own thread touches them, so they need no locks. There are three exceptions: callers put jobs
into the inbox under its lock; the commit thread waits for the server and touches only the commit
that it was given; the feed watcher pokes the lane through the inbox. (The edit watcher of a folder
store sends requests like any caller.)

A lane is no authority. Other lanes, other coordinators and other machines write to the same store,
and the lane does not know of them. Nothing that it remembers decides anything by itself.


What may be trusted, and when

 1. A record is trusted for one round. It is loaded after the command arrived, and the commit writes
    only if version and digest are still what was read. So a decision on a stale record does no
    harm: it conflicts. Commands of one batch on the same record are decided in order, each on what
    the one before left, and conflict together. Between rounds a lane keeps only how unchanged bytes
    were decoded.
 2. A prefetched record is trusted if this lane has not changed it since the load began. A change by
    another lane or coordinator conflicts, as in (1).
 3. A record in flight is not trusted. Items that depend on it wait until its batch is finished.
    Until then its tasks are not offered.
 4. Other records are used as they were read, never as this round changes them: their commit may
    still fail. A completion opens its dependents only once it is committed.
 5. Time and epoch are the store's and belong to the snapshot. The epoch travels with the commit. If
    the store has begun another epoch since, every change conflicts: the generation may have been
    granted in a history that was lost.
 6. Counts (claims and sessions of a tenant) are exact within a lane and may be one refresh behind
    between lanes.
 7. Wake-ups, notifications, the feed watcher and the edit watcher are hints. Each may come for no
    reason, late or never; that only makes callers wait longer.
 8. An answer is trusted by its caller. So it is given only when every record that it depends on is
    committed or was read in the same round, and when the followups of the decision are written.


When something fails

Conflict. Another lane or coordinator has changed the record. The item is loaded and decided again
after a short random pause, until its deadline; then the caller gets Busy, which means that nothing
was done. Each change of a commit conflicts alone, and the other items of the batch are answered.

Error of one command. If the rules refuse it, or it is too large for the store, the error is that
item's outcome. If the store refuses a whole commit because of one change, the commit is split in
halves until that change is alone.

Outage. Items are retried until their deadlines, and then the caller gets StoreUnavailable. Waiters
keep waiting. A service records when its store was unavailable. Claims that fell due in that time
get a grace (`outage_grace`), so that a whole fleet is not fenced off because it could not renew.

Unknown outcome. The connection broke inside of a commit. The engine reads the record's events: our
digest at our version means that it was written, another digest that it was not. If neither is
there, a slow server may still write ours. Then the item remembers the possible write and is decided
again, and before a caller gets the answer that nothing was done, the change is sent once more, or
the answer is OutcomeUnknown. A write that may have committed is never reported as not done
(`unknown_outcomes`, ADR 18).

Caller gone. A job that was cancelled before it began is dropped. A claim granted to it later is
released by a job of the lane itself, also while the lane closes.

Death of the process. Before the commit, nothing has happened. Between the commit and its reactions,
the records are right and only consequences are missing: dependents look blocked, children do not
exist yet. The next caller that finds nothing to do, or the monitor, runs the recovery, which reads
the feed from the project's cursor and repeats the reactions. They are idempotent, and no mark is
written before a commit. Only denials are lost: they are written once a second.

Death of the thread. Only a bug ends a lane's thread. Its traceback is printed. Before it ends it
answers every remaining caller: Closed if the command was not sent, OutcomeUnknown if its commit
was. The engine then reports itself as broken, and a service fails its health check. A failure in
the commit thread is raised again in the lane's thread, and ends it too.

Close. The inbox accepts no more jobs. The batch in flight is finished and answered; queued jobs and
waiters get Closed. Grants without a caller are still released, and unresolved ones are looked up
for a few seconds. Then the lane saves the cursor of its recoveries and ends.

Interrupt. Ctrl-C reaches the main thread, which waits for the lane. The commit continues
undisturbed, and the job is abandoned as if its caller had disconnected.
"""
