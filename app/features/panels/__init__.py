"""Metrics and samples of several runs beside one another: the page "Panels".

A panel has a line of one metric for each run. Samples have the prediction of each run, as its best weights make it on
a part of its data; an evaluation is stored in the folder of the run.
"""
