"""Runs that are stored with a project: the pages "Runs" and "Console", and `tapedeck runs`.

They are listed, sorted and filtered, shown and compared, resumed, forked, restored, named, deleted and exported for
TensorBoard. What starts, keeps and reads runs is `app.views.run` and `app.runs`.
"""
