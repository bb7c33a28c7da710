"""The parts of the scripted fleet: plan, worker, crew, story, stage, words, report. Begin with `scripted_fleet.py`."""
