"""The doctor: looks at everything, changes nothing, and says what to type.

examination.py  all checks, one after the other
finding.py      what a check has found
files.py        the file and what lies beside it
versions.py     what it all runs on
replay.py       chain, fold and payloads
tasks.py        claims, plans, results: what the records say
reactions.py    what a crash cut off
fixing.py       what may be done without asking
report.py       findings on a terminal
"""
