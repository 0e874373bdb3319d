"""Lessons: text in steps, whose goals are noticed as they are reached, and the grading of what is handed in.

A lesson is data: `lesson.md` in a folder of `resources/lessons`, or a teacher's. Nothing in it runs; its goals compare
values of a closed vocabulary (`facts`) that the program has anyway.
"""
