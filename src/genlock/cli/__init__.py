"""The command line: one verb a word. It translates between terminals and the coordinator, and decides nothing.

    main.py       which verbs there are; each is imported when it is called
    app.py        what every verb is given: settings, the fleet, the way to answer
    answers.py    answers and errors on a terminal, as JSON, or bare
    exits.py      exit codes
    identity.py   which session a call belongs to
    opening.py    opening the project's store
    slips.py      what was perhaps mistyped, where nothing is found
    completing.py completion in the shell
    editing.py    changing a settings file
    verbs/        the verbs, by theme

Where the store is and where settings come from is also the library's business: genlock.places, genlock.settings.
"""
