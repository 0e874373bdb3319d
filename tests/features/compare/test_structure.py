"""Modules of two models are matched by path, then by what they are, however large the models."""

from __future__ import annotations

from torch import nn

from app.features.compare.compute.facts import facts_of
from app.features.compare.compute.structure import ModuleFacts, common, compare
from app.features.compare.values import Structure


def matched(a: nn.Module, b: nn.Module) -> Structure:
    return compare(facts_of(a), facts_of(b))


def net(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def test_a_layer_inserted_into_a_sequence_shifts_no_other() -> None:
    a = net(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    b = net(
        nn.Linear(4, 8),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(8, 8),
        nn.ReLU(),
        nn.Linear(8, 2),
    )
    found = matched(a, b)
    assert dict(found.pairs) == {
        "": "",
        "0": "0",
        "1": "1",
        "2": "3",
        "3": "4",
        "4": "5",
    }
    assert (
        [one.path for one in found.added] == ["2"]
        and not found.removed
        and not found.changed
    )


def test_settings_that_differ_are_listed_with_both_values() -> None:
    a = net(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU())
    b = net(
        nn.Conv2d(3, 8, 3, padding=0, bias=False),
        nn.BatchNorm2d(8, eps=1e-3),
        nn.GELU("tanh"),
    )
    found = {
        one.a: {each.name: (each.a, each.b) for each in one.settings}
        for one in matched(a, b).changed
    }
    assert found["0"] == {"padding": ("(1, 1)", "(0, 0)"), "bias": ("8 float32", "")}
    assert found["1"] == {"eps": ("1e-05", "0.001")}
    assert found["2"] == {"approximate": ("none", "tanh")}


def test_the_classes_of_two_generated_texts_are_one() -> None:
    a, b = (
        type("Net", (nn.Sequential,), {"__module__": f"<tapedeck-{text}>"})(nn.ReLU())
        for text in "ab"
    )
    assert matched(a, b).same and {one.kind for one in facts_of(a)} == {
        "Net",
        "torch.nn.modules.activation.ReLU",
    }


def own_class(module: str, name: str) -> type[nn.Module]:
    return type(name, (nn.Sequential,), {"__module__": module})


def test_classes_of_one_name_in_two_versions_of_a_file_are_no_change() -> None:
    a, b = (
        own_class(file, "Net")(own_class(file, "Block")(nn.Linear(4, 4)))
        for file in ("old", "new")
    )
    assert matched(a, b).same
    other = own_class("new", "Net")(own_class("new", "Wide")(nn.Linear(4, 4)))
    assert [
        each.text for one in matched(a, other).changed for each in one.settings
    ] == ["class Block → Wide"]


def test_a_class_that_one_side_takes_from_the_other_stays_what_it_is() -> None:
    block = own_class("library", "Block")
    a, b = (
        own_class("mine", "Net")(block(nn.ReLU())),
        own_class("library", "Net")(block(nn.ReLU())),
    )
    assert [one.a for one in matched(a, b).changed] == [""]


def test_tied_and_frozen_parameters_are_settings() -> None:
    a, b = (
        nn.ModuleDict(
            {"tokens": nn.Embedding(9, 4), "head": nn.Linear(4, 9, bias=False)}
        )
        for _ in range(2)
    )
    a["head"].weight = a["tokens"].weight
    b["tokens"].weight.requires_grad_(False)
    texts = [setting.text for one in matched(a, b).changed for setting in one.settings]
    assert texts == [
        "weight 9×4 float32 → 9×4 float32, frozen",
        "weight 9×4 float32, tied to tokens.weight → 9×4 float32",
    ]


def test_a_wrapped_model_and_a_renamed_layer_are_matched() -> None:
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    a, b = (
        nn.ModuleDict({"fc": nn.Linear(4, 8), "x": nn.ReLU()}),
        nn.ModuleDict({"classifier": nn.Linear(4, 8)}),
    )
    assert dict(matched(a, Wrapper(a)).pairs)["fc"] == "module.fc"
    found = matched(a, b)
    assert [(one.a, one.b) for one in found.moved] == [("fc", "classifier")]
    assert [one.path for one in found.removed] == ["x"]


def test_sequences_with_many_edits_are_matched_in_order() -> None:
    a, b = [*range(5000)], [*range(2500, 7500)]
    assert common(a, b) == [(at, at - 2500) for at in range(2500, 5000)]


def test_every_module_of_a_large_model_is_matched() -> None:
    def blocks(count: int, left_out: int) -> list[ModuleFacts]:
        found = [ModuleFacts("", "Net", -1)]
        for number in (one for one in range(count) if one != left_out):
            at = len(found)
            found.append(ModuleFacts(f"{number}", "Block", 0))
            found += [
                ModuleFacts(f"{number}.{name}", name, at, (("width", f"{number % 7}"),))
                for name in "abc"
            ]
        return found

    found = compare(blocks(5000, -1), blocks(5000, 1234))
    assert len(found.pairs) == 1 + 4 * 4999
    assert (
        [one.path for one in found.removed] == ["1234"]
        and not found.changed
        and not found.added
    )


def test_of_equal_layers_the_last_is_missing_and_a_wrapped_one_has_moved() -> None:
    """Which of equal layers is gone cannot be told: the fewest numbers shift, also behind one that differs."""

    class Row(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def rows(count: int, eps: float = 1e-5) -> nn.Sequential:
        made = net(*(Row() for _ in range(count)))
        made[3].norm.eps = eps
        return made

    found = matched(rows(9), rows(8, 1e-3))
    assert (
        [one.path for one in found.removed] == ["8"]
        and not found.added
        and not found.moved
    )
    b = rows(9)
    b[5] = net(b[5], nn.Identity())
    found = matched(rows(9), b)
    assert dict(found.pairs)["5.fc"] == "5.0.fc" and [
        one.path for one in found.added
    ] == ["5"]
    assert [(one.a, one.b) for one in found.moved] == [
        ("5", "5.0")
    ] and not found.removed
