"""What a click log is: roles, checks, rows, and views of rows."""
