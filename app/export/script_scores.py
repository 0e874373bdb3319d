"""The lines of an exported script that gather metrics over the validation samples, as `app.training.scores` does."""

from __future__ import annotations

import inspect

from app.data.spec import TOKENS, VALUES, SourceSpec
from app.training.config import TrainingConfig
from app.training.scores import SCORES, SIGMOID, SOFTMAX, reading

_NAMES = ("scores", "scores_type", "scores_none", "scores_begun", "scores_gathered", "scores_told", "scores_said",
          "scores_shown")  # fmt: skip

_TOLD = """
    told = {f"val_{name}": computed(score) for name, score in scores.items()}"""
_SHOWN = """
            validation += "".join(f", {name} {value:.4f}" for name, value in scores.items())"""


def parts(config: TrainingConfig, spec: SourceSpec) -> dict[str, str]:
    """What goes where in the text of the script; nothing of it where a run asks for no metrics."""
    if not config.metrics:
        return dict.fromkeys(_NAMES, "")
    columns = {VALUES: "", TOKENS: "output.shape[-1]"}.get(spec.task, "output.shape[1]")
    gathered = [
        f"scores = scores or {{name: score.to(output.device) for name, score in make_scores({columns}).items()}}",
        *_gathered(config, spec),
    ]
    return {
        "scores": ", scores",
        "scores_type": ", dict[str, float]",
        "scores_none": ", {}",
        "scores_begun": "\n    scores: dict[str, Metric] = {}",
        "scores_gathered": "".join(f"\n            {line}" for line in gathered) + _TOLD,
        "scores_told": ", told",
        "scores_said": ", **scores",
        "scores_shown": _SHOWN,
    }


def _gathered(config: TrainingConfig, spec: SourceSpec) -> list[str]:
    names = config.metrics
    if spec.task == VALUES:
        return ["for score in scores.values():",
                "    score.update(output.float().flatten(1), labels[batch].float().flatten(1))"]  # fmt: skip
    flat = "output.reshape(-1, output.shape[-1])" if spec.task == TOKENS else "output"
    rows = f"{flat}.float()" + {SOFTMAX: ".softmax(1)", SIGMOID: ".sigmoid()"}.get(reading(config.loss.name), "")
    lines = []
    if names != ("perplexity",):
        lines.append(f"rows = {rows}")
    for name in names:
        whole = name == "perplexity"
        labels = "labels[batch].flatten()" if spec.task == TOKENS and not whole else "labels[batch]"
        lines.append(f'scores["{name}"].update({"output.float()" if whole else "rows"}, {labels})')
    return lines


def imports(config: TrainingConfig) -> str:
    """The classes of torchmetrics, by their modules."""
    if not config.metrics:
        return ""
    wanted: dict[str, set[str]] = {"torchmetrics": {"Metric"}}
    for name in config.metrics:
        wanted.setdefault(SCORES[name].module, set()).add(SCORES[name].metric)
    return "".join(f"from {module} import {', '.join(sorted(names))}\n" for module, names in sorted(wanted.items()))


def helpers(config: TrainingConfig) -> str:
    """The function that makes the metrics, and the one that reads them."""
    if not config.metrics:
        return ""
    from app.training.recipes import computed

    argument = "classes: int" if any(SCORES[name].by_class for name in config.metrics) else "_: int = 0"
    quiet = min((SCORES[name].quiet for name in config.metrics), key=len)
    lines = [
        f"def make_scores({argument}) -> dict[str, Metric]:",
        '    """What is measured over the validation samples of an epoch."""',
        f"    quiet = {quiet!r}".replace("'", '"'),
        "    return {",
        *(f'        "{name}": {SCORES[name].call("classes")},' for name in config.metrics),
        "    }",
    ]
    text = inspect.getsource(computed).replace("metric: Any", "metric: Metric").rstrip()
    return "\n\n\n" + "\n".join(lines) + f"\n\n\n{text}"
