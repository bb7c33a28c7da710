"""`genlock dev`: a service with a sample plan and agents at work, to look at and to try clients on.

plan.py       the plan
agent.py      one agent, a process of its own that speaks HTTP
crew.py       the agents' processes
director.py   what is made to happen: accidents, replacements, another round
stage.py      the service with all of that beside it
"""
