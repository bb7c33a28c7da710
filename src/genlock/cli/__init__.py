"""The command line, with one module for the commands of each theme. It translates between terminals
and the coordinator, and decides nothing.

    main.py         the commands there are; each is imported when it is called
    app.py          the options of every command, the open fleet, the way to answer
    answers.py      answers and errors on a terminal, as JSON, or bare
    exit_codes.py   exit codes
    open_fleet.py   opens the project's store
    inputs.py       what commands read besides options: claims, leases, JSON, files
    suggestions.py  why nothing was found or is ready, and what to try
    completion.py   completion in the shell
    commands/       the commands, by theme
    render/         answers in a terminal: text, tables, pages, drawings, progress
    doctor/         the checks of `genlock doctor`
    sample_fleet/   the agents of `genlock demo` and `genlock dev`

The sentences that explain an answer are in genlock.messages.

Finding the store and reading settings belong to the library: genlock.project_folder and
genlock.settings.
"""
