"""Tables as spreadsheets export them: values and labels are those of the file, or a row is named with its cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.data.config import DataConfig
from app.data.loaders import load, read_files, read_spec
from app.data.own_files.encodings import ENCODINGS, encoding_of
from app.data.own_files.table_survey import number_format
from app.data.preview import preview
from app.data.sources import DataError
from app.util.frozen import FrozenMap
from tests.data.test_files import fitting
from tests.export.test_script import app_lines, run_script  # noqa: F401
from tests.slow.odd_tables import check_table, table_kinds
from tests.support.training_jobs import job

GERMAN = "Temperatur;Preis;Klasse\r\n" + "-1,25;1.234,50;grä\r\n0,5;987,00;grö\r\n" * 10


def table(
    folder: Path, content: str | bytes, written_in: str = "utf-8", **options: Any
) -> DataConfig:
    path = folder / "t.csv"
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode(written_in)
    )
    return DataConfig("file.csv", path=str(path), options=FrozenMap(options))


def inputs_of(data: DataConfig) -> list[list[float]]:
    rows: list[list[float]] = read_files(data, lambda *_: None).inputs.tolist()
    return rows


@pytest.mark.parametrize(
    "encoding",
    ["latin-1", "cp1252", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"],
)
def test_labels_that_differ_in_one_letter_are_two_classes_in_every_encoding(
    tmp_path, encoding
):
    data = table(tmp_path, GERMAN, encoding)
    spec = read_spec(data)
    assert spec.classes == ("grä", "grö") and spec.per_class == (10, 10)
    assert inputs_of(data)[:2] == [[-1.25, 1234.5], [0.5, 987.0]]
    assert "a decimal comma" in " ".join(spec.notes)
    assert ("which is a guess" in " ".join(spec.notes)) == (
        encoding in ("latin-1", "cp1252")
    )


def test_a_chosen_encoding_is_taken_or_refused_and_nothing_is_replaced(tmp_path):
    content = "x,y\n1,grä\n2,grö\n"
    assert read_spec(table(tmp_path, content, "cp1252", encoding="cp1250")).classes == (
        "grä",
        "grö",
    )
    assert read_spec(table(tmp_path, content, "cp437", encoding="cp437")).classes == (
        "grä",
        "grö",
    )
    with pytest.raises(
        DataError,
        match="is not UTF-8: line 2 has bytes that are none of its letters. Choose another",
    ):
        read_spec(table(tmp_path, content, "cp1252", encoding="utf-8"))


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "имя,город\nИван,Москва\nПётр,Казань\n"),
        ("cp1250", "jméno,město\nŽofie,Brno\nLukáš,Plzeň\nŠárka,Třebíč\n"),
        ("cp1253", "όνομα,πόλη\nΓιώργος,Αθήνα\n"),
        ("cp932", "名前,都市\n太郎,東京\n花子,大阪\n"),
        ("gb18030", "姓名,城市\n张三,北京\n李四,上海\n"),
        ("big5", "姓名,城市\n張三,台北\n李四,高雄\n"),
        ("cp949", "이름,도시\n철수,서울\n영희,부산\n"),
        ("koi8-r", "имя,город\nИван,Москва\nПётр,Казань\n"),
    ],
)
def test_the_encodings_of_other_scripts_are_found(tmp_path, encoding, text):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode(encoding))
    name, note = encoding_of(path)
    assert name == encoding and ENCODINGS[encoding] in note


@pytest.mark.parametrize(
    ("cells", "separator", "form"),
    [
        (("1,5", "2,75"), ";", (",", "")),
        (("1.234,50", "7,00"), ";", (",", ".")),
        (("1,234.50", "7.00"), ",", (".", ",")),
        (("1,234", "5,678"), ";", (",", "")),
        (("1,234", "5,678"), ",", (".", ",")),
        (("1,234,567", "5,678"), ";", (".", ",")),
        (("1\u202f234,5", "2,5"), ";", (",", "\u202f")),
        (("1'234.5", "2.5"), ";", (".", "'")),
        (("1.234", "2.5"), ";", (".", "")),
        (("a,b", "x"), ";", (".", "")),
    ],
)
def test_decimal_sign_and_thousands_are_found(cells, separator, form):
    made, _ = number_format(cells, separator)
    assert (made.decimal, made.thousands) == form


def test_every_cell_that_is_no_number_is_named_with_row_and_column(tmp_path):
    cells = [
        "1",
        "NA",
        "2",
        "",
        "inf",
        "3",
        "1_000",
        "nan",
        "4",
        "−5",
        *map(str, range(6, 60)),
    ]
    spec = read_spec(
        table(
            tmp_path,
            "x,z,y\n"
            + "".join(f"{cell},{n}.5,{n % 2}\n" for n, cell in enumerate(cells)),
        )
    )
    assert spec.columns == ("x", "z")
    assert spec.bad == (
        "row 3, x: 'NA' is not a number",
        "row 5, x is empty",
        "row 6, x: inf is not finite",
        "row 8, x: '1_000' is not a number",
        "row 9, x: nan is not finite",
    )


def test_what_is_missing_among_whole_numbers_is_no_class(tmp_path):
    spec = read_spec(table(tmp_path, "x,y\n" + "1,0\n2,1\n" * 20 + "3,NA\n4,\n"))
    assert spec.classes == ("0", "1")
    assert spec.bad == ("row 42, y: 'NA' is not a class", "row 43, y is empty")


def test_columns_without_and_with_the_same_name_get_one(tmp_path, run_script):
    names = "type,class,,x,x,lambda,y\n"
    data = table(
        tmp_path,
        names
        + "".join(f"{n},.5,1e3,{n % 7},2.5,{n % 3}.5,{n % 2}\n" for n in range(20)),
    )
    spec = read_spec(data)
    assert spec.columns == ("type", "class", "column 3", "x", "x 2", "lambda")
    a_job = job(fitting(spec), data=data, epochs=1, batch_size=4)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)


def test_a_run_on_a_table_with_decimal_commas_is_the_run_of_the_script(
    tmp_path, run_script
):
    data = table(tmp_path, GERMAN, "cp1252")
    a_job = job(fitting(read_spec(data)), data=data, epochs=1, batch_size=4)
    lines, ended = run_script(a_job, "--json")
    assert ended is None and lines == app_lines(a_job)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04rest", "Excel workbook. Export its sheet as CSV"),
        (b"\x1f\x8b\x08rest", "compressed with gzip"),
        (b"\xff\xfea\x00,\x00b", "marked as UTF-16, but line 1"),
        (b"x,y\n", "no rows below its column names"),
        (b"x,y\n1,0\n", "one row; training needs several"),
        (b"\n\n", "has no rows"),
    ],
)
def test_what_is_no_table_is_refused_by_what_it_is(tmp_path, content, words):
    with pytest.raises(DataError, match=words):
        read_spec(table(tmp_path, content))


def test_columns_that_say_nothing_are_said(tmp_path):
    rows = "".join(f"1.0,{n},0{n:04},{n % 2}.0,\n" for n in range(30))
    notes = read_spec(table(tmp_path, "x,id,zip,y,\n" + rows)).notes
    assert notes == (
        "column 5 is ignored: it is empty.",
        "x is 1.0 in every row.",
        "id counts the rows; leave it out if it has no other meaning.",
        "zip has leading zeros, so it is read as categories; to read it as numbers, set numbers.",
        "The whole numbers of y are read as 2 classes; task sets another use.",
    )


def test_the_preview_shows_the_values_of_the_file(tmp_path):
    data = replace(
        table(
            tmp_path,
            "x,city,y\n"
            + "".join(f"{60 + n}.5,{'AB'[n % 2]},{n % 2}\n" for n in range(20)),
        ),
        shuffle=False,
    )
    seen = preview(data, None, 8, lambda *_: None)
    assert seen.rows[0] == ("x", "city") and seen.standardised and seen.high < 3
    first = load(data).rows["training"][0]
    assert seen.rows[1] == (f"{60 + int(first)}.5", "AB"[int(first) % 2])


@pytest.mark.parametrize("name", list(table_kinds()))
def test_every_export_of_a_table_is_read_as_pandas_reads_it_or_named(tmp_path, name):
    assert check_table(name, tmp_path).fault == ""
