"""Ways to break the engine: each module has some, by what they do, in `MUTANTS`."""
