"""Engines: processes that compute with torch, so that the window's process does not import it.

A task is a request, a frozen struct with values alone, and a handler. They lie in `requests/<kind>.py` and
`tasks/<kind>.py`, those of a feature in its `values.py` and its `task.py`:

    class Measure(Request[Vitals], frozen=True):  # requests/measure.py: the answer is a Vitals
        lane: ClassVar[str] = "measure"         # requests of one lane are answered one after another

    @handles(Measure)                           # tasks/measure.py: may import torch
    def measure(request: Measure, context: Context) -> Vitals: ...

A window calls `EngineService.ask(key, Measure(), on_answer=...)`, everything else `Engine.ask(Measure())`, which
returns a future. Serialisable are frozen structs, enums and exceptions of the program, and NumPy arrays; the module of
a request imports what its answer may be made of. A handler reports with `context.progress`, receives messages of
`Question.send` in `context.inbox`, polls `context.cancelled()`, and keeps objects alive under a Handle with
`context.keep`, until the window releases it.
"""
