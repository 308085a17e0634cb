"""A student on disk in skops format, which is read without running code from the file."""

import json
import logging
import re
import sys
import zipfile
from importlib import import_module
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tutelage._internal.gate import DOCUMENT, MODEL, read_input, user_path
from tutelage._internal.outputs import form
from tutelage._internal.records import Entries
from tutelage._internal.releases import STUDENT_FILE, Manifest
from tutelage.exceptions import InvalidDataError
from tutelage.reporting.evidence import MANIFEST_HASH

_LOGGER = logging.getLogger(__name__)
_MOST_BYTES = 2**31
_SCHEMA = "schema.json"
_EVIDENCE = "release.json"  # which skops does not read
_Stated = dict[str, str | int | float | bool]
_OTHER_ARRAYS = "sklearn.externals.array_api_compat"
_TRACES = re.compile(r'("__id__": |"file": ")([\w-]+)(\.\w+")?')
STUDENT = form("a student", lambda path: _SCHEMA in zipfile.ZipFile(path).namelist())
# Passive parts of scikit-learn's own classifiers, and maps and students of this library, that skops does not vouch for
# by itself.
_TRUSTED = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.tree._tree.Tree",
    "tutelage.features.columns.PublicColumns",
    "tutelage.features.fitted.PublicEncoder",
    "tutelage.features.fitted.PublicTransformer",
    "tutelage.features.images.EdgesAndLevels",
    "tutelage.features.landmarks.PublicKernel",
    "tutelage.features.landmarks.UnitBall",
    "tutelage.features.learned.PublicPCA",
    "tutelage.features.learned.PublicProjection",
    "tutelage.features.learned.PublicScaling",
    "tutelage.features.learned.PublicSteps",
    "tutelage.features.public_numbers.PublicSum",
    "tutelage.features.schema.Schema",
    "tutelage.features.scored.BesideScores",
    "tutelage.features.scored.PublicModel",
    "tutelage.features.scored.ScoredRows",
    "tutelage.features.texts.TermWeights",
    "tutelage.students.additive.AdditiveClassifier",
    "tutelage.students.additive_mean.AdditiveRegressor",
    "tutelage.students.certificate.Certificate",
    "tutelage.students.forest.ForestStudent",
    "tutelage.students.networks.augmentation.ImageAugmentation",
    "tutelage.students.networks.consistency.ConsistencyStudent",
    "tutelage.students.noisy_sums.NoisySumClassifier",
    "tutelage.students.pairs.Pair",
    "tutelage.students.propagation.LabelPropagationStudent",
)


def write_student(student: object, path: Path, evidence: Entries | None = None) -> None:
    """Write a fitted scikit-learn estimator, with `evidence_of` its release, to a path at which nothing is yet.

    It holds public rows and released labels only, so it may be published.
    """
    content = _without_traces(_skops().dumps(student))
    if evidence is not None:
        content = with_evidence(content, evidence)
    path.write_bytes(content)
    _LOGGER.info("Student saved: %s.", path.name)


def with_evidence(content: bytes, evidence: Entries) -> bytes:
    """Return a skops file that states this of its release, instead of what it stated before."""
    rewritten = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as archive, zipfile.ZipFile(rewritten, "w") as stated:
        for item in archive.infolist():
            if item.filename != _EVIDENCE:
                stated.writestr(item, archive.read(item))
        stated.writestr(zipfile.ZipInfo(_EVIDENCE), json.dumps(evidence, indent=1))
    return rewritten.getvalue()


def evidence_in(content: bytes, where: str) -> Entries:
    """Return what a skops file states of its release, unchecked; nothing if it is of none, or of an earlier version."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            times = archive.namelist().count(_EVIDENCE)
            if not times:
                return {}
            if times == 1 and archive.getinfo(_EVIDENCE).file_size <= DOCUMENT:
                return msgspec.json.decode(archive.read(_EVIDENCE), type=_Stated)
    except (zipfile.BadZipFile, msgspec.MsgspecError, UnicodeDecodeError):
        pass
    raise InvalidDataError(f"{_EVIDENCE} in {where} cannot be read. Get the file again.")


def load_student(path: str | PathLike[str], trusted: tuple[str, ...] = ()) -> Any:
    """Read the student of a results folder, or a skops file, without running code from the file.

    Read files from people you trust only: a tree or an index with wrong numbers can still crash a prediction.

    Parameters
    ----------
    path : path-like
        The results folder, whose files must be those of its manifest; or a skops file, which is read as it is.
    trusted : tuple of str
        Names of further types that the caller vouches for.

    Raises
    ------
    InvalidDataError
        If there is no such skops file, or it contains a type that is not trusted; no code of it has been run. If a
        file of a results folder is missing, was changed, or is of another release.
    """
    path = user_path(path)
    return _student_in(_stored_student(path)[0], path, trusted)


def load_with_evidence(path: str | PathLike[str]) -> tuple[Any, Entries]:
    """Return the student of a results folder, or a skops file, with what it states of its release."""
    path = user_path(path)
    content, manifest = _stored_student(path)
    stated = evidence_in(content, str(path))
    if manifest is not None:
        stated[MANIFEST_HASH] = manifest.hash
    return _student_in(content, path), stated


def _student_in(content: bytes, path: Path, trusted: tuple[str, ...] = ()) -> Any:
    skops_io = _skops()
    unreadable = InvalidDataError(
        f"{path} is not a readable skops file. Name the student.skops of a run."
    )
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            is_too_large = sum(item.file_size for item in archive.infolist()) > _MOST_BYTES
        types = set[str]()
        if not is_too_large:
            types.update(skops_io.get_untrusted_types(data=content))
    except Exception:  # whatever a file that is no skops file makes skops' reader raise
        raise unreadable from None
    if is_too_large:
        raise InvalidDataError(
            f"{path} would unpack to more than {_MOST_BYTES} bytes. Is it a student?"
        )
    unknown = types - {*_TRUSTED, *trusted}
    if unknown:
        raise InvalidDataError(
            f"{path} holds types that are not known to be safe: {', '.join(sorted(unknown))}. If you trust where the "
            "file comes from, name them in `trusted`."
        )
    try:
        return skops_io.loads(content, trusted=[*_TRUSTED, *trusted])
    except ModuleNotFoundError as error:
        if error.name == "torch":  # an extra
            raise
        raise unreadable from None
    except Exception:  # what was made to harm raises whatever its types do with wrong values
        raise unreadable from None


def _stored_student(path: Path) -> tuple[bytes, Manifest | None]:
    """Return the bytes of a student, and the manifest of the results folder that it was read from."""
    if path.is_dir():
        manifest = Manifest.read_whole(path)
        return manifest.content(path, STUDENT_FILE), manifest
    try:
        return read_input(path, MODEL), None
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None


def _without_traces(content: bytes) -> bytes:
    """Return a skops file without times, addresses, random names and bytes of memory of the process that wrote it.

    Times tell how long a release took, and memory may have held private rows.
    """
    numbers = dict[str, int]()  # in place of names

    def numbered_name(match: re.Match[str]) -> str:
        before, name, ending = match.groups(default="")
        number = numbers.setdefault(name, len(numbers))
        return f"{before}{number}{ending}"

    rewritten = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as archive, zipfile.ZipFile(rewritten, "w") as public:
        schema = _TRACES.sub(numbered_name, archive.read(_SCHEMA).decode())
        for name in archive.namelist():
            if name == _SCHEMA:
                public.writestr(zipfile.ZipInfo(name), schema.encode())
                continue
            part = archive.read(name)
            stem, dot, kind = name.rpartition(".")
            if kind == "npy":
                part = _without_gaps(part)
            public.writestr(zipfile.ZipInfo(f"{numbers[stem]}{dot}{kind}"), part)
    return rewritten.getvalue()


def _without_gaps(content: bytes) -> bytes:
    """Return an array without what memory held between the fields of its records: the nodes of a tree have gaps."""
    stored = np.load(BytesIO(content), allow_pickle=False)
    if stored.dtype.names is None:
        return content
    clean = np.zeros(stored.shape, stored.dtype)
    for name in stored.dtype.names:
        clean[name] = stored[name]
    rewritten = BytesIO()
    np.save(rewritten, clean)
    return rewritten.getvalue()


def _skops() -> Any:
    """Return skops' reader and writer, whose import looks at all of scikit-learn.

    On its way it would load libraries of arrays that no student holds, which takes seconds where they are installed.
    """
    names = [f"{_OTHER_ARRAYS}.{library}" for library in ("cupy", "dask", "torch")]
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  so that Python does not find it
    try:
        return import_module("skops.io")
    finally:
        for name in hidden:
            sys.modules.pop(name, None)  # another thread may have been first
