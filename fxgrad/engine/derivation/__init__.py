"""Programs made of programs: simpler ones, derived ones, and what user code that was asked for them said."""
