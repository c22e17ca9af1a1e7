"""The granularity of programs: scalars, arrays, or blocks of them, with the cost of each."""
