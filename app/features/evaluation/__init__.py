"""A net with its weights held against samples: the page "Evaluation", and `tapedeck evaluate`.

Loss, metrics, confusion matrix and table of the classes; the samples by their loss, with their predictions; and the
prediction for a drawing, a picture or numbers that a person enters. What evaluates is `app.training.evaluation`, which
a run and other features use too.
"""
