"""A task's rules: `claims` (the clock itself), `operate` (operators' acts), `relate` (others it depends on), `fold` (evolve)."""
