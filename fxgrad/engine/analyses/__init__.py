"""What can be told of programs without running them: whether they are right, what they cost, how keys are used."""
