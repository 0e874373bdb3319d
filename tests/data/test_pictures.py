"""Folders of pictures as people have them: each is read with its values, or named with what is not read of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from app.data.config import DataConfig
from app.data.known_sources import PICTURE_SUFFIXES
from app.data.loaders import read_files, read_spec
from app.data.own_files.pictures import picture_files
from app.util.frozen import FrozenMap
from tests.data.test_files import fitting
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.slow.odd_pictures import check_picture, picture_kinds
from tests.support.training_jobs import job

SIDE = 8


def config(folder: Path, **options: Any) -> DataConfig:
    return DataConfig(
        "file.pictures",
        path=str(folder),
        options=FrozenMap({"size": (SIDE, SIDE), **options}),
    )


def folder_of_16_bits(folder: Path, **settings: Any) -> DataConfig:
    """Write two classes of 16-bit pictures, both far above 255."""
    rng = np.random.default_rng(0)
    for name, level in (("dark", 9000), ("light", 30000)):
        (folder / name).mkdir()
        for number in range(6):
            pixels = rng.normal(level, 900, (SIDE, SIDE)).astype(np.uint16)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return DataConfig(
        "file.pictures",
        path=str(folder),
        options=FrozenMap(size=(SIDE, SIDE)),
        **settings,
    )


def values(data: DataConfig) -> torch.Tensor:
    inputs = read_files(data, lambda *_: None).inputs
    return (
        inputs
        if isinstance(inputs, torch.Tensor)
        else inputs[torch.arange(len(inputs))]
    )


def one_class(
    folder: Path, picture: Image.Image, name: str = "0.png", **saved: Any
) -> Path:
    (folder / "a").mkdir(exist_ok=True)
    picture.save(folder / "a" / name, **saved)
    return folder / "a" / name


@pytest.mark.parametrize("keep", ["memory", "disk"])
def test_pictures_of_16_bits_keep_them_in_training(tmp_path, keep):
    folder_of_16_bits(tmp_path)
    data = config(tmp_path, keep=keep)
    spec, read = read_spec(data), values(data)
    files = [file for name in spec.classes for file in picture_files(tmp_path / name)]
    exact = np.stack(
        [np.asarray(Image.open(file)).astype(np.float64) / 65535 for file in files]
    )
    assert (
        read.dtype == torch.float32
        and not spec.as_bytes
        and "more than 8 bits" in " ".join(spec.notes)
    )
    assert np.abs(read.numpy() - exact[:, None]).max() < 1e-6, "grey in three channels"


@pytest.mark.parametrize("options", [{}, {"keep": "disk"}, {"colour": False}])
def test_a_run_on_pictures_of_16_bits_is_the_run_of_the_script(
    tmp_path, run_script, options
):
    (tmp_path / "p").mkdir()
    folder_of_16_bits(tmp_path / "p")
    data = config(tmp_path / "p", **options)
    a_job = job(fitting(read_spec(data)), data=data, epochs=2, batch_size=4)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)


@pytest.mark.parametrize(
    ("pixels", "white"),
    [
        (np.linspace(0, 1, 64, dtype=np.float32), 1),
        (np.linspace(0, 200, 64, dtype=np.float32), 255),
        (np.linspace(0, 60000, 64).astype(np.int32), 65535),
    ],
)
def test_numbers_without_a_depth_are_scaled_by_the_usual_white_above_all_of_them(
    tmp_path, pixels, white
):
    one_class(tmp_path, Image.fromarray(pixels.reshape(SIDE, SIDE)), "0.tif")
    one_class(tmp_path, Image.fromarray(pixels.reshape(SIDE, SIDE) / 1000), "1.tif")
    read = values(config(tmp_path, colour=False))
    assert read[0, 0].numpy() == pytest.approx(
        pixels.reshape(SIDE, SIDE).astype(np.float64) / white, abs=1e-6
    )
    assert float(read[1].max()) < 0.002, "the same scale for all"
    assert f"{white:g} as white" in " ".join(
        read_spec(config(tmp_path, colour=False)).notes
    )


def test_values_that_are_not_finite_are_named(tmp_path):
    pixels = np.full((SIDE, SIDE), np.nan, np.float32)
    one_class(tmp_path, Image.fromarray(pixels), "0.tif")
    one_class(tmp_path, Image.new("L", (SIDE, SIDE)), "1.png")
    assert read_spec(config(tmp_path)).bad == (
        "a/0.tif: it holds values that are NaN or infinite",
    )


def test_what_is_not_read_of_a_picture_is_said(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3
    red = Image.new("RGB", (SIDE, SIDE), "red")
    one_class(tmp_path, red, "turned.jpg", exif=exif)
    one_class(tmp_path, Image.new("RGBA", (SIDE, SIDE)), "clear.png")
    one_class(
        tmp_path,
        red,
        "moving.gif",
        save_all=True,
        append_images=[Image.new("RGB", (SIDE, SIDE), "blue")],
    )
    notes = read_spec(config(tmp_path)).notes
    for words in (
        "turned.jpg) has a rotation",
        "clear.png) has an alpha channel",
        "moving.gif) has several frames",
    ):
        assert any(words in note for note in notes), notes
    first = values(config(tmp_path))[1].numpy()
    assert np.array_equal(first[:, 0, 0], (254, 0, 0)) or np.array_equal(
        first[:, 0, 0], (255, 0, 0)
    ), "the first frame"


def test_a_link_back_and_a_link_to_another_class_are_no_classes(tmp_path):
    one_class(tmp_path, Image.new("L", (SIDE, SIDE)))
    (tmp_path / "elsewhere").mkdir()
    data = tmp_path / "data"
    for name in ("cats", "dogs"):
        (data / name).mkdir(parents=True)
        Image.new("L", (SIDE, SIDE)).save(data / name / "0.png")
    os.symlink(data, data / "loop")
    os.symlink(tmp_path, data / "above")
    os.symlink(data / "cats", data / "animals")
    os.symlink(tmp_path / "a", data / "birds")
    spec = read_spec(config(data))
    assert spec.classes == ("birds", "cats", "dogs")
    told = " ".join(spec.notes)
    assert (
        "loop is a link that leads back" in told
        and "above is a link that leads back" in told
    )
    assert "animals is a link to pictures of cats" in told


def test_hidden_files_empty_classes_and_odd_names_are_named_in_printable_letters(
    tmp_path,
):
    one_class(tmp_path, Image.new("L", (SIDE, SIDE)))
    for name in ("empty", "__MACOSX", ".ipynb_checkpoints"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "._0.png").write_bytes(b"\0\5")
    (tmp_path / "a" / "new\nline.png").write_bytes(b"no picture")
    (tmp_path / "a" / "none.png").write_bytes(b"")
    spec = read_spec(config(tmp_path))
    assert spec.classes == ("a", "empty") and spec.per_class == (1, 0)
    assert spec.bad == (
        "a/new\\nline.png: its content is no image of a known format",
        "a/none.png: the file is empty",
    )
    told = " ".join(spec.notes)
    assert (
        "No picture in empty." in told
        and "__MACOSX, which macOS adds" in told
        and "2 hidden files" in told
    )


@pytest.mark.parametrize("keep", ["memory", "disk"])
def test_a_picture_that_ends_early_is_named_before_the_run(tmp_path, keep):
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8))
    for number, suffix in enumerate(("jpg", "png", "bmp", "tif")):
        file = one_class(tmp_path, noise, f"{number}.{suffix}")
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    one_class(tmp_path, noise, "whole.png")
    spec = read_spec(config(tmp_path, keep=keep))
    assert spec.per_class == (1,) and [one.partition(":")[0] for one in spec.bad] == [
        "a/0.jpg",
        "a/1.png",
        "a/2.bmp",
        "a/3.tif",
    ]


def test_what_can_be_dropped_is_what_is_read_of_a_folder(tmp_path):
    for suffix in PICTURE_SUFFIXES:
        (tmp_path / f"a{suffix}").touch()
    assert len(picture_files(tmp_path)) == len(PICTURE_SUFFIXES)


@pytest.mark.parametrize("name", list(picture_kinds()))
def test_every_kind_of_picture_is_read_as_pillow_reads_it_or_named(tmp_path, name):
    assert check_picture(name, tmp_path).fault == ""
