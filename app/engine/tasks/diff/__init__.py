"""Compare two models: `answer` handles the request, `sides` makes them."""

from app.engine.tasks.diff.answer import answer as answer
