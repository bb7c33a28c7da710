"""The demo: a fleet at work, with real processes on a real store, and everything happens to it that happens to fleets.

Five workers share one plan. One is killed in its work, one is stopped until its lease has run out and comes back as a zombie, one is
fenced off by an operator who then adopts its result, and one task is split among several. At the end the events that were written
are checked for everything that Genlock promises.

    play.py      the whole play, from the plan to the report
    plan.py      the plan
    worker.py    one worker, a process of its own
    crew.py      the workers' processes
    story.py     what is made to happen to them
    words.py     events in words
    stage.py     how it is shown
    examine.py   what was promised, and what speaks against it
    report.py    lineage and verdict on a terminal
"""
