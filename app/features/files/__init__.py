"""The file of the project: new, open, save and the recent ones; work that was not saved when a window ended; and what
another program or window did to the open file, with what differs.

The File menu, autosave into a journal, and two dialogs. `workspace.files` opens and saves without it.
"""
