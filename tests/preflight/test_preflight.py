"""Before a run: what net, data, loss and batches have against one another is said, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.catalog.catalog import catalog
from app.builder.diagnostics.problems import Problem, apply_cure
from app.builder.literals import DType
from app.data.config import DataConfig
from app.data.loaders import load, read_spec
from app.data.sample_counts import training_count
from app.preflight import preflight, synthetic_data
from app.preflight.net_cost import with_cost
from app.project import file
from app.project.project import Project
from app.training.config import Choice, TrainingConfig
from app.util import processors
from app.util.frozen import FrozenMap
from app.util.resources import path as resource
from tests.support.builder_nets import net


def project(
    *layers: Any, shape: tuple[int, ...] = (1, 8, 8), **training: Any
) -> Project:
    graph = net([("input", "x", {"shape": shape}), *layers, ("output", "y", {})])
    return Project(graph=graph, training=TrainingConfig(**training))


def said(found: Project) -> tuple[Problem, ...]:
    return preflight.problems(found, analyse(found.graph))


MLP = (("nn.Flatten", "flatten", {}), ("nn.Linear", "fc", {"out_features": 10}))
NORMED = (*MLP, ("nn.BatchNorm1d", "bn", {}))


def test_a_net_that_fits_hears_nothing() -> None:
    assert said(project(*MLP)) == ()


def test_wrong_number_of_classes_is_said_and_cured() -> None:
    wrong = project(
        ("nn.Flatten", "flatten", {}), ("nn.Linear", "fc", {"out_features": 7})
    )
    (problem,) = said(wrong)
    assert problem.severity == "error" and "10 classes" in problem.message
    assert (
        said(replace(wrong, graph=apply_cure(wrong.graph, catalog(), problem.cures[0])))
        == ()
    )


@pytest.mark.parametrize(
    "params", [{"key": "out"}, {"when": "training"}, {"key": "out", "when": "eval"}]
)
def test_an_output_under_a_key_or_in_one_mode_is_said_and_cured(
    params: dict[str, str],
) -> None:
    right = project(*MLP)
    wrong = replace(
        right,
        graph=right.graph.with_node(
            replace(right.graph.nodes["y"], params=FrozenMap(params))
        ),
    )
    (problem,) = said(wrong)
    assert problem.severity == "error" and problem.node == "y"
    cure = next(
        cure
        for cure in problem.cures
        if cure.label == "Return it always, without a key"
    )
    assert said(replace(wrong, graph=apply_cure(wrong.graph, catalog(), cure))) == ()
    if params == {"key": "out"}:
        losses = problem.cures[0].settings["losses"]
        assert (
            said(replace(wrong, training=replace(wrong.training, losses=losses))) == ()
        ), "the key stays"


SEVEN = (("nn.Flatten", "flatten", {}), ("nn.Linear", "fc", {"out_features": 7}))
WRONG_ENDS: dict[str, tuple[Any, ...]] = {
    "Linear, log_softmax": (*SEVEN, ("nn.LogSoftmax", "soft", {})),
    "Linear, Dropout": (*SEVEN, ("nn.Dropout", "drop", {})),
    "a picture": (("nn.Conv2d", "conv", {"out_channels": 4}),),
    "ten values in a picture": (
        ("nn.Conv2d", "conv", {"out_channels": 10, "kernel_size": 8}),
    ),
    "a row of a flattened picture": (
        ("nn.Conv2d", "conv", {"out_channels": 4}),
        ("nn.Flatten", "flatten", {}),
    ),
}


@pytest.mark.parametrize("name", WRONG_ENDS)
def test_whatever_the_net_ends_in_one_click_gives_a_value_for_each_class(
    name: str,
) -> None:
    training = {"loss": Choice("NLLLoss")} if "softmax" in name else {}
    wrong = project(*WRONG_ENDS[name], **training)
    problem = next(each for each in said(wrong) if "classes" in each.message)
    mended = replace(wrong, graph=apply_cure(wrong.graph, catalog(), problem.cures[0]))
    assert analyse(mended.graph).errors == ()
    assert not [each for each in said(mended) if each.severity == "error"]


def test_an_input_of_another_shape_is_said_and_cured() -> None:
    wrong = project(*MLP, shape=(1, 9, 9))
    (problem,) = said(wrong)
    assert problem.severity == "error" and "1×8×8" in problem.reason
    assert [cure.label for cure in problem.cures] == [
        "Set shape to 1×8×8",
        "Choose other data…",
        "Replace Handwritten digits (scikit-learn) by random noise",
    ]
    assert (
        said(replace(wrong, graph=apply_cure(wrong.graph, catalog(), problem.cures[0])))
        == ()
    )


def test_random_noise_that_fits_a_net_is_the_last_cure_and_says_what_it_replaces() -> (
    None
):
    wrong = project(
        ("nn.Flatten", "flatten", {}),
        ("nn.Linear", "fc", {"out_features": 1000}),
        shape=(3, 16, 16),
    )
    for problem in said(wrong):
        first, *_, choose, noise = problem.cures
        assert first.label == "Set shape to 1×8×8", "what mends the input comes first"
        assert choose.chooses_data and not choose.data
        assert (
            noise.label == "Replace Handwritten digits (scikit-learn) by random noise"
        )
        assert apply_cure(wrong.graph, catalog(), choose) == wrong.graph
        assert said(replace(wrong, data=replace(wrong.data, **noise.data))) == (), (
            "the network itself stays"
        )


def test_a_net_is_fitted_first_to_files_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "a,b,y\n" + "".join(f"{row},{row % 3},{row / 7}\n" for row in range(20))
    )
    wrong = replace(
        project(*MLP, shape=(1, 9, 9)),
        data=DataConfig("file.csv", path=str(tmp_path / "t.csv")),
    )
    read_spec(wrong.data)
    (problem,) = [
        each for each in said(wrong) if each.message == "x does not match the data"
    ]
    assert problem.cures[0].label == "Set shape to 2"
    assert problem.cures[-1].label == "Replace t.csv, which you chose, by random noise"


@pytest.mark.parametrize(
    "params",
    [
        {"shape": None},
        {"shape": (4,), "dtype": DType("complex64")},
        {"shape": (4,), "batch": 1},
        {"shape": (10**9, 10**9)},
    ],
)
def test_synthetic_data_are_not_offered_where_none_fit(params: dict[str, Any]) -> None:
    graph = net([("input", "x", params), ("output", "y", {})])
    (cure,) = synthetic_data.cures(Project(graph=graph), analyse(graph))
    assert cure.chooses_data


@pytest.mark.parametrize("name", ["Encoder-decoder on dates", "Siamese net on digits"])
def test_synthetic_data_fit_a_net_with_several_inputs(name: str) -> None:
    given = file.read(resource("examples", f"{name}.tape"))
    analysis = analyse(given.graph)
    made = synthetic_data.with_these(replace(given, data=DataConfig()), analysis)
    assert made is not None and made.data.source == "made.fields"
    assert preflight.problems(made, analysis) == ()


def test_synthetic_data_have_a_target_for_each_output() -> None:
    graph = net(
        [
            ("input", "ids", {"shape": (6,), "dtype": DType("int64")}),
            ("nn.Embedding", "words", {"num_embeddings": 30, "embedding_dim": 8}),
            ("nn.Linear", "next", {"out_features": 30}),
            ("output", "tokens", {}),
        ]
    )
    wired = Project(graph=graph)
    other, made = synthetic_data.cures(wired, analyse(graph))
    assert other.chooses_data
    assert made.data["options"]["fields"] == "ids (6,) int64 < 30"
    fitted = replace(wired, data=replace(wired.data, **made.data))
    assert said(fitted) == ()


def test_the_loss_of_the_project_decides_what_the_net_should_end_in() -> None:
    soft = project(*MLP, ("nn.LogSoftmax", "soft", {}))
    (problem,) = said(soft)
    assert problem.node == "soft"
    assert [cure.label for cure in problem.cures] == ["Use NLLLoss", "Remove soft"]
    use = problem.cures[0].settings
    assert said(replace(soft, training=soft.training.changed(**use))) == ()
    other = replace(soft, training=replace(soft.training, loss=Choice("NLLLoss")))
    assert said(other) == ()


def test_the_last_batch_is_counted_from_the_data() -> None:
    """1,438 samples stay for training, so batches of 3 leave one over."""
    (problem,) = said(project(*NORMED, batch_size=3))
    assert (
        problem.severity == "error"
        and "1,438 samples in batches of 3 leave 1" in problem.reason
    )
    assert said(project(*NORMED, batch_size=4)) == ()


def test_what_the_last_batch_would_raise_is_what_torch_raises() -> None:
    import torch

    from app.source.compiled import load_class

    model = load_class(analyse(project(*NORMED).graph).source)()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model(torch.zeros(1, 1, 8, 8))


@pytest.mark.parametrize("fraction", [0.2, 0.1, 0.37])
def test_training_count_is_that_of_the_data(fraction: float) -> None:
    config = DataConfig(validation_fraction=fraction)
    assert training_count(config) == load(config).info.train_count


def test_a_net_with_errors_of_its_own_is_asked_nothing_more() -> None:
    broken = project(
        ("nn.Conv2d", "conv", {"kernel_size": 20}), ("nn.Softmax", "soft", {})
    )
    assert not any(problem.node == "soft" for problem in said(broken))


def test_a_net_that_cannot_learn_is_said_and_cured() -> None:
    whole = project(*MLP)
    linear = next(node for node in whole.graph.nodes.values() if node.op == "nn.Linear")
    frozen = replace(whole, graph=whole.graph.with_node(replace(linear, frozen=True)))
    (problem,) = said(frozen)
    assert problem.severity == "error" and "fc" in problem.reason
    assert (
        said(
            replace(frozen, graph=apply_cure(frozen.graph, catalog(), problem.cures[0]))
        )
        == ()
    )


def test_a_net_without_parameters_is_told_what_it_lacks() -> None:
    found = project(
        ("nn.Flatten", "flatten", {}),
        ("nn.AdaptiveAvgPool1d", "pool", {"output_size": 10}),
    )
    assert "nothing to train" in said(found)[0].message


def on_data(
    data: DataConfig,
    *layers: Any,
    shape: tuple[int, ...],
    dtype: str = "float32",
    **training: Any,
) -> Project:
    graph = net(
        [
            ("input", "x", {"shape": shape, "dtype": DType(dtype)}),
            *layers,
            ("output", "y", {}),
        ]
    )
    return Project(graph=graph, data=data, training=TrainingConfig(**training))


def mended(wrong: Project) -> tuple[Problem, ...]:
    """What is left once every cure of the net there is was taken."""
    for _ in range(4):
        every = [cure for problem in said(wrong) for cure in problem.cures]
        cures = [cure for cure in every if not cure.data and not cure.chooses_data]
        if not cures:
            break
        wrong = replace(wrong, graph=apply_cure(wrong.graph, catalog(), cures[0]))
    return said(wrong)


def test_values_to_predict_are_asked_of_the_net_and_of_the_loss(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "a,b,price\n" + "".join(f"{i},{i * i},{i / 3}\n" for i in range(40))
    )
    data = DataConfig("file.csv", path=str(tmp_path / "t.csv"))
    wrong = on_data(data, ("nn.Linear", "fc", {"out_features": 7}), shape=(9,))
    assert [problem.message for problem in said(wrong)] == [preflight.UNREAD]
    read_spec(data)
    loss = next(
        problem for problem in said(wrong) if "CrossEntropyLoss" in problem.message
    )
    assert "MSELoss" in loss.reason
    right = replace(wrong, training=replace(wrong.training, loss=Choice("MSELoss")))
    assert any("1 value to predict" in problem.message for problem in said(right))
    assert mended(right) == ()


def test_one_output_for_two_classes_is_offered_its_loss(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "a,y\n" + "".join(f"{i / 7},{i % 2}\n" for i in range(40))
    )
    data = DataConfig("file.csv", path=str(tmp_path / "t.csv"))
    read_spec(data)
    wrong = on_data(data, ("nn.Linear", "fc", {"out_features": 1}), shape=(1,))
    (problem,) = said(wrong)
    cure = next(cure for cure in problem.cures if cure.label == "Use BCEWithLogitsLoss")
    right = replace(wrong, training=replace(wrong.training, **cure.settings))
    assert "takes one value of two classes" in problem.reason and said(right) == ()
    fit = preflight.fit(right, analyse(right.graph))
    assert (
        fit is not None
        and "N×1: one value for two classes" in fit.data
        and not fit.problems
    )


def test_bad_rows_stop_a_run_unless_they_are_to_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "a,y\n1,0\n2\n" + "".join(f"{i},{i % 2}\n" for i in range(40))
    )
    data = DataConfig("file.csv", path=str(tmp_path / "t.csv"))
    read_spec(data)
    wrong = on_data(data, ("nn.Linear", "fc", {"out_features": 2}), shape=(1,))
    (problem,) = said(wrong)
    assert (
        problem.severity == "error" and "row 3: 1 fields instead of 2" in problem.reason
    )
    (cure,) = problem.cures
    assert (
        cure.label == "Skip them" and cure.data == {"bad": "skip"} and not cure.settings
    )
    skipping = replace(wrong, data=replace(data, **cure.data))
    read_spec(skipping.data)
    assert said(skipping) == ()


def test_one_class_alone_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{i},cat\n" for i in range(40)))
    data = DataConfig(
        "file.csv", path=str(tmp_path / "t.csv"), options=FrozenMap(target="y")
    )
    read_spec(data)
    (problem,) = said(
        on_data(data, ("nn.Linear", "fc", {"out_features": 1}), shape=(1,))
    )
    assert (
        problem.severity == "warning" and problem.message == "t.csv has only one class"
    )


def test_a_text_wants_numbers_in_and_a_value_for_each_character(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("abcab " * 50)
    data = DataConfig(
        "file.text", path=str(tmp_path / "t.txt"), options=FrozenMap(context=4)
    )
    read_spec(data)
    embedding = ("nn.Embedding", "emb", {"num_embeddings": 4, "embedding_dim": 8})
    assert (
        mended(
            on_data(
                data, embedding, ("nn.Linear", "fc", {"out_features": 3}), shape=(9,)
            )
        )
        == ()
    )


def test_data_that_cannot_be_are_told_before_a_run() -> None:
    (problem,) = said(replace(project(*MLP), data=DataConfig("file.csv")))
    assert "no file is chosen" in problem.reason
    (problem,) = said(
        replace(
            project(*MLP, loss=Choice("MSELoss")), data=DataConfig(class_weights=True)
        )
    )
    assert "MSELoss does not support class weights" in problem.message


@pytest.mark.parametrize(
    ("layers", "training", "threads"),
    [
        (MLP, {}, 1),
        (MLP, {"threads": 2}, 2),
        (MLP, {"batch_size": 1024}, 0),  # 65,536 numbers come in
        (
            (MLP[0], ("nn.Linear", "wide", {"out_features": 300}), MLP[1]),
            {},
            0,
        ),  # 1.2 million multiply-adds a batch
        (
            (
                (
                    "nn.Conv2d",
                    "conv",
                    {"out_channels": 16, "kernel_size": 3, "padding": 1},
                ),
                *MLP,
            ),
            {},
            0,
        ),
        (
            (
                (
                    "nn.Conv2d",
                    "conv",
                    {"out_channels": 2, "kernel_size": 3, "padding": 1},
                ),
                *MLP,
            ),
            {},
            1,
        ),
        (
            (MLP[0], ("nn.Linear", "long", {"out_features": 600}), MLP[1]),
            {"batch_size": 2},
            0,
        ),  # its weights are many
    ],
)
def test_a_run_of_a_small_net_takes_one_thread_unless_it_is_told_how_many(
    layers, training, threads
) -> None:
    from app.export.train_script import training_script

    found = project(*layers, **training)
    job = preflight.job(found, with_cost(analyse(found.graph), catalog()))
    assert job.training.threads == threads
    written = f"torch.set_num_threads({threads or processors.usual_threads()})"
    assert written in training_script(job), (
        "the script takes as many, or what a run would begin with"
    )


def test_of_a_net_that_is_large_or_not_known_the_threads_are_torchs() -> None:
    many = project(*(("nn.ReLU", f"relu{turn}", {}) for turn in range(80)), *MLP)
    unknown = project(("nn.Linear", "fc", {"in_features": 3, "out_features": 10}))
    for found in (many, unknown):
        assert (
            preflight.job(
                found, with_cost(analyse(found.graph), catalog())
            ).training.threads
            == 0
        )
