"""What a model says a click is: P(click given a user model), tables and their solvers."""
