"""The windows that look at the project. Qt is at home here."""
