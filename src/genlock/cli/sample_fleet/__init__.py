"""A sample plan with agents at work: `genlock demo` plays it once on a store of its own, and
`genlock dev` serves it until it is stopped."""
