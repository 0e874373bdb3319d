"""The drawing: a graph of calls, its rules, its shapes and its source. Knows no Qt."""
