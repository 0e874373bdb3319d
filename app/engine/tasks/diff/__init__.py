"""Compare two models: `answer` handles the request, `sides` makes them, `reading` reads the sides of a comparison."""

from app.engine.tasks.diff.answer import answer as answer
from app.engine.tasks.diff.reading import read_side as read_side
