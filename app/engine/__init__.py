"""Processes of ours that compute with torch, so that the window's need not import it.

A task is a request, a frozen dataclass in `requests/<kind>.py` with values alone, and a handler in `tasks/<kind>.py`:

    @dataclass(frozen=True)
    class Measure(Request[Vitals]):             # requests/measure.py: the answer is a Vitals
        lane: ClassVar[str] = "measure"         # requests of one lane are answered one after another

    @handles(Measure)                           # tasks/measure.py: may import torch
    def measure(request: Measure, context: Context) -> Vitals: ...

A window asks with `EngineService.ask(key, Measure(), on_answer=...)`, everybody else with `Engine.ask(Measure())`,
which gives a future. Classes that travel lie in the modules that `values.MODULES` names, which import no torch;
frozen dataclasses, msgspec structs, enums, exceptions and NumPy arrays do. A handler says more with `context.progress`,
hears what the question is sent (`Question.send`) in `context.inbox`, asks `context.cancelled()`, and keeps things
alive under a Handle with `context.keep`, until the window releases it.
"""
