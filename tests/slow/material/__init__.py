"""What the checks work on: nets, scripts, hostile files, cases, and windows that are driven from outside."""
