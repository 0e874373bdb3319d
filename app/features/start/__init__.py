"""The page "Start", with which the program begins where no project is opened."""
