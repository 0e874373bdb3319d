"""The gallery of examples, which new projects begin with."""
