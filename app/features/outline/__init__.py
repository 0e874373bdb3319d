"""The page Outline: all nodes of the sheet as a list that can be searched."""
