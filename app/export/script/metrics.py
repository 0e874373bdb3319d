"""The lines of an exported script that gather metrics over the validation samples, as `app.training.metrics` does."""

from __future__ import annotations

import inspect

from app.data.spec import TOKENS, VALUES, SourceSpec
from app.export.script.steps import Terms
from app.training.config import TrainingConfig
from app.training.metrics import SCORES, SIGMOID, SOFTMAX, reading

_NAMES = ("scores", "scores_type", "scores_none", "scores_begun", "scores_gathered", "scores_told", "scores_said",
          "scores_shown")  # fmt: skip

_TOLD = """
    told = {f"val_{name}": computed(score) for name, score in scores.items()}"""
_SHOWN = """
            validation += "".join(f", {name} {value:.4f}" for name, value in scores.items())"""


_PARTS = """
            for name, part in loss_function.parts.items():
                parts[name] = parts.get(name, 0.0) + part.item() * len(batch)"""
_PARTS_TOLD = """
    told = {f"val_loss_{name}": value / len(samples) for name, value in parts.items()}"""


def parts(config: TrainingConfig, spec: SourceSpec, terms: Terms) -> dict[str, str]:
    """What goes where in the text of the script; nothing of it where a run asks for no metrics."""
    if not config.metrics and not config.losses:
        return dict.fromkeys(_NAMES, "")
    begun = "\n    parts: dict[str, float] = {}" if config.losses else ""
    lines, told = (_PARTS, _PARTS_TOLD) if config.losses else ("", "")
    if config.metrics:
        columns = {VALUES: "", TOKENS: "output.shape[-1]"}.get(spec.task, "output.shape[1]")
        gathered = [
            *([f"output = {terms.answer}"] if config.losses else []),
            f"scores = scores or {{name: score.to(output.device) for name, score in make_scores({columns}).items()}}",
            *_gathered(config, spec, terms.known),
        ]
        begun += "\n    scores: dict[str, Metric] = {}"
        lines += "".join(f"\n            {line}" for line in gathered)
        told += _TOLD.replace("told = ", "told |= ") if config.losses else _TOLD
    return {
        "scores": ", scores",
        "scores_type": ", dict[str, float]",
        "scores_none": ", {}",
        "scores_begun": begun,
        "scores_gathered": lines + told,
        "scores_told": ", told",
        "scores_said": ", **scores",
        "scores_shown": _SHOWN,
    }


def _gathered(config: TrainingConfig, spec: SourceSpec, known: str) -> list[str]:
    names = config.metrics
    if spec.task == VALUES:
        return ["for score in scores.values():",
                f"    score.update(output.float().flatten(1), {known}.float().flatten(1))"]  # fmt: skip
    flat = "output.reshape(-1, output.shape[-1])" if spec.task == TOKENS else "output"
    loss = config.losses[0].loss.name if config.losses else config.loss.name
    rows = f"{flat}.float()" + {SOFTMAX: ".softmax(1)", SIGMOID: ".sigmoid()"}.get(reading(loss), "")
    lines = []
    if names != ("perplexity",):
        lines.append(f"rows = {rows}")
    for name in names:
        whole = name == "perplexity"
        labels = f"{known}.flatten()" if spec.task == TOKENS and not whole else known
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
    from app.training.script_recipes import computed

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
