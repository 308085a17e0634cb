import numpy as np
import pytest

from tutelage.exceptions import InvalidDataError
from tutelage.features import UNKNOWN, PublicColumns
from tutelage.tables import Table, read_csv

PUBLIC = Table("public.csv", {"age": ["31", "", "45"], "city": ["Ulm", "Bonn", "Ulm"]})


def test_codes_come_from_public_rows_only():
    columns = PublicColumns.learn(PUBLIC, ("age", "city"))
    private = Table("private.csv", {"city": ["Bonn", "Kiel"], "age": ["7", ""]})
    matrix = columns.matrix(private)
    assert matrix[0].tolist() == [7, 0]
    assert np.isnan(matrix[1, 0])
    assert matrix[1, 1] == UNKNOWN
    assert columns.encoder is not None
    assert "Kiel" not in str(columns.encoder.named_transformers_["codes"].categories_)


def test_numbers_alone_need_no_encoder():
    columns = PublicColumns.learn(PUBLIC, ("age",))
    assert columns.encoder is None
    assert columns.matrix(Table("private.csv", {"age": ["1e3", "-2"]})).tolist() == [[1000], [-2]]


def test_private_text_in_a_public_number_column_is_refused_without_quoting_it():
    columns = PublicColumns.learn(PUBLIC, ("age",))
    with pytest.raises(InvalidDataError, match=r"Column 'age' of private\.csv holds text") as caught:
        columns.matrix(Table("private.csv", {"age": ["Mrs Miller"]}))
    assert "Miller" not in str(caught.value)


def test_a_missing_column_is_named_and_no_cell_is_shown():
    columns = PublicColumns.learn(PUBLIC, ("age", "city"))
    with pytest.raises(InvalidDataError, match=r"private\.csv has no column 'city'\. Is its first line a header\?"):
        columns.matrix(Table("private.csv", {"age": ["1"], "town": ["Ulm"]}))


def test_csv_is_read_with_trimmed_cells_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes('\ufeffage, city\n 31 , Ulm\n\n45, "Bonn, West"\n'.encode())
    assert read_csv(path).columns == {"age": ["31", "45"], "city": ["Ulm", "Bonn, West"]}
    assert read_csv(path).n_rows == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no rows below its header"),
        (b"age,city\n", "no rows below its header"),
        (b"age,city\n31\n", "Line 2 of rows.csv has 1 cells, the header 2"),
        (b"age,age\n1,2\n", "Columns 1 and 2 of .* have the same name"),
        (b"age,\n1,2\n", "Column 2 of .* has no name"),
        (b",age\n0,2\n", "The first column of .* has no name. Is it an index"),
        (b"age\n\xff\xfe\n", "not a UTF-8 csv file"),
    ],
)
def test_broken_csv_is_refused_in_one_sentence(content, message, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidDataError, match=message):
        read_csv(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidDataError, match=r"rows\.csv cannot be read: No such file"):
        read_csv(tmp_path / "rows.csv")


def test_no_private_cell_is_carried_along_by_an_error(tmp_path):
    columns = PublicColumns.learn(PUBLIC, ("age",))
    (tmp_path / "rows.csv").write_bytes(b"name\nMrs Miller \xff\n")
    for refused in (
        lambda: columns.matrix(Table("private.csv", {"age": ["Mrs Miller"]})),
        lambda: read_csv(tmp_path / "rows.csv"),
    ):
        with pytest.raises(InvalidDataError) as caught:
            refused()
        assert caught.value.__context__ is None
