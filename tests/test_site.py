"""The site: links and formulas that MkDocs cannot do itself, every code block run somewhere, every command there is."""

import importlib.util
import logging
import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

import tutelage as package
from conftest import REPOSITORY
from test_docs import blocks
from test_guides import PAGES as GUIDES
from tutelage.cli.app import app
from tutelage.cli.config import load_config

PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").rglob("*.md")]
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = {"python", "toml", "sh", "console"}


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tool_{name}", REPOSITORY / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Code blocks: how many of each language a page has, and the test that runs them; test_guides.py runs whole pages.
RUN_BY = {
    "README.md": ("test_docs.py", {"python": 1, "sh": 1}),  # its sh, pip install, in test_packaging.py
    "docs/audit.md": ("test_cli_audit.py", {"python": 3}),
    "docs/ballots.md": ("test_docs.py", {"python": 2, "toml": 2}),
    "docs/configuration.md": ("test_docs.py", {"toml": 2, "python": 1}),  # its second toml below
    "docs/federation.md": ("test_cli_federate.py", {"toml": 3, "sh": 4, "python": 1}),
    "docs/ledger.md": ("test_docs.py", {"python": 2}),
    "docs/local.md": ("test_docs.py", {"python": 1}),
    "docs/mechanisms.md": ("test_docs.py", {"python": 3}),
    "docs/membership.md": ("test_audit_membership.py", {"python": 1}),
    "docs/pitfalls.md": ("test_refits.py", {"python": 1}),
    "docs/planning.md": ("test_planning.py", {"python": 1}),
    "docs/planning-votes.md": ("test_planning_votes.py", {"python": 1}),
    "docs/publishing.md": ("test_docs.py", {"python": 1, "console": 1}),  # its console below
    "docs/card.md": ("test_docs.py", {"python": 1}),
    "docs/students.md": ("test_docs.py", {"python": 4}),
    "docs/teachers.md": ("test_docs.py", {"python": 7}),
}
OTHER_PAGES = {"docs/tutorial-errors.md": "test_tutorial.py"}  # runs each block that it finds on the page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_code_block_is_run_by_a_test(page):
    name = str(page.relative_to(REPOSITORY))
    found = Counter(language for language, _ in BLOCK.findall(page.read_text()) if language in CODE)
    if page in GUIDES:
        assert name not in RUN_BY
    elif name in OTHER_PAGES:
        assert Path(name).name in (REPOSITORY / "tests" / OTHER_PAGES[name]).read_text()
    elif name in RUN_BY:
        test, expected = RUN_BY[name]
        assert found == expected
        assert Path(name).name in (REPOSITORY / "tests" / test).read_text()
    else:
        assert not found, f"{name} has code that no test runs; run it, and name the test in RUN_BY"


def test_guides_are_the_start_page_the_tutorial_the_how_tos_and_the_concepts():
    names = {str(page.relative_to(REPOSITORY / "docs")) for page in PAGES if page.is_relative_to(REPOSITORY / "docs")}
    guides = {name for name in names if re.fullmatch(r"index\.md|tutorial\.md|(howto|concepts)/[\w-]+\.md", name)}
    assert {Path(name).parts[0] for name in guides} == {"index.md", "tutorial.md", "howto", "concepts"}
    assert guides == {str(page.relative_to(REPOSITORY / "docs")) for page in GUIDES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_is_not_marked_as_code_is_none(page):
    needs_a_cluster = REPOSITORY / "docs" / "howto" / "clusters.md"
    for language, block in BLOCK.findall(page.read_text()):
        assert language in {"", "text", *CODE}, language
        if language not in CODE and page != needs_a_cluster:
            assert not re.search(r"^(from \S+ import|import \S+$|def |class |\[\w+\]$)", block, re.MULTILINE), block


def test_another_estimator_is_configured_as_documented(tmp_path):
    whole, part = blocks("docs/configuration.md", "toml")
    replaced = re.sub(r"^\[teachers\].*?(?=^\[)", f"{part}\n", whole, flags=re.MULTILINE | re.DOTALL)
    assert replaced.count("\n[teachers]\n") == 1
    (tmp_path / "config.toml").write_text(replaced)
    assert load_config(tmp_path / "config.toml").teachers.estimator == tomllib.loads(part)["teachers"]["estimator"]


def test_an_epsilon_is_proposed_and_tested_as_documented(tmp_path, called):
    (block,) = blocks("docs/publishing.md", "console")
    counts = np.repeat([[240, 8, 2], [250, 0, 0]], 50, axis=0)
    for name in ("public-votes", "votes"):
        np.savez(tmp_path / f"{name}.npz", counts=counts)
    (tmp_path / "public.csv").write_text("age,ward\n" + "".join(f"{age},north\n" for age in range(100)))
    made = called(
        "ledger", "init", "patients.db", "--epsilon", "20", "--delta", "1e-5", "--neighbors", "ballot", cwd=tmp_path
    )
    assert made.returncode == 0, made.stderr
    results = [called(*shlex.split(line)[2:], cwd=tmp_path) for line in block.splitlines()]
    assert [result.returncode for result in results] == [0, 0, 0], [result.stderr for result in results]
    assert "The test " in results[-1].stdout  # passed, or in one of twenty runs refused


# Commands


def words_of_commands() -> set[str]:
    """Every command with the commands that it holds, and every option behind its command."""
    found: set[str] = set()

    def visit(command: Any, path: str) -> None:
        context = command.make_context(path, [], resilient_parsing=True)
        found.add(path)
        options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
        found.update(f"{path} {name}" for option in options for name in option.opts)
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            visit(command.get_command(context, name), f"{path} {name}")

    visit(typer.main.get_command(app), "tutelage")
    return found


def test_documented_commands_and_options_exist():
    known, seen = words_of_commands(), 0
    for page in PAGES:
        text = page.read_text()
        lines = [line for _, block in BLOCK.findall(text) for line in block.splitlines()]
        lines += re.findall(r"`(tutelage [a-z][^`]*)`", BLOCK.sub("", text).replace("\n", " "))
        for line in lines:
            command = re.match(r"^(?:\$ )?(tutelage [a-z]+)( [a-z]+)?(?=\s|$)(.*)", line.split("#")[0])
            if command is None:
                continue
            verb, noun, rest = command.groups(default="")
            path = verb + noun if verb + noun in known else verb
            assert path in known, f"{page.name}: {line}"
            for option in re.findall(r"(?<=\s)--[a-z-]+", noun + rest):
                assert f"{path} {option}" in known, f"{page.name}: {option} of {line}"
            seen += 1
    assert seen > 50


# The reference


def test_every_public_unit_has_its_page_and_every_page_its_units():
    documented = {
        module
        for page in (REPOSITORY / "docs" / "reference").glob("*.md")
        for module in tool("reference").NAMES.findall(page.read_text())
    }
    folder = Path(package.__file__).parent
    units = {path.stem if path.suffix else path.name for path in folder.iterdir() if not path.name.startswith("_")}
    units -= {
        "py",
        "cli",
        "progress",
        "published",
    }  # a marker; the command line, which has its own page; what is internal
    assert {module.split(".")[1] for module in documented if module.startswith("tutelage.")} == units
    assert "tutelage_reproductions" in documented
    for page in (REPOSITORY / "docs" / "reference").glob("[a-z]*.md"):
        if page.stem in units:
            assert f"names of tutelage.{page.stem} " in page.read_text()


def test_the_reference_documents_public_names_only():
    reference = tool("reference")
    assert "::: tutelage.accounting.Accountant" in reference.documentation_of("tutelage.accounting").split("\n\n")
    assert reference.public_names("tutelage.labeling.rounds") == [
        "AskedRounds", "ask_in_rounds", "round_rows", "first_predictions", "even_rounds",
    ]  # fmt: skip
    assert "[`GNMax`][tutelage.mechanisms.GNMax]" in reference.table_of_names()


def test_the_command_line_is_described_whole():
    described = tool("reference").command_line()
    for word in words_of_commands() - {"tutelage"}:
        path, _, option = word.partition(" --")
        if path != "tutelage" and not option:
            assert f" {path}\n" in described
        elif path != "tutelage" and option != "help":
            assert f"`--{option}" in described


def test_fields_of_named_tuples_are_parameters():
    griffe = pytest.importorskip("griffe")
    pair = "class Pair(NamedTuple):\n    left: int\n    right: str = 'r'\n"
    code = f"from typing import NamedTuple\n{pair}class Other:\n    x: int\n"
    extensions = griffe.load_extensions(tool("named_tuples").NamedTuples)
    with griffe.temporary_visited_module(code, extensions=extensions) as module:
        found = [(one.name, str(one.default)) for one in module["Pair"].parameters if one.name != "self"]
        assert found == [("left", "None"), ("right", "'r'")]
        assert "__init__" not in module["Other"].members


# Links and formulas


def test_links_out_of_the_site_become_text():
    site = tool("site")
    assert site.unlinked("[a run](../examples/adult.toml), [x](ledger.md)", "local.md") == (
        "a run (`examples/adult.toml`), [x](ledger.md)"
    )
    assert site.unlinked("[`run.py`](../../examples/consortium/run.py)", "howto/a.md") == "`examples/consortium/run.py`"
    assert site.unlinked("[c](../../CHANGELOG.md#unreleased)", "howto/a.md") == "[c](../changelog.md#unreleased)"
    assert site.unlinked("[dead](../nowhere.md)", "local.md") == "[dead](../nowhere.md)"
    image = "![a figure](../examples/adult.toml)"
    assert site.unlinked(image, "local.md") == image  # a figure that the site does not hold is for MkDocs to report
    fenced = "```\n[a](../examples/adult.toml)\n```"
    assert site.unlinked(fenced, "local.md") == fenced


def test_files_at_the_root_become_pages():
    site = tool("site")
    text = "[l](docs/ledger.md#a) [e](examples/adult.toml) [w](https://example.org) ![f](docs/figures/plan.png)"
    assert site.root_page(text) == (
        "[l](ledger.md#a) [e](../examples/adult.toml) [w](https://example.org) ![f](figures/plan.png)"
    )
    nav = [{"A": "a.md"}, {"B": [{"C": "c.md"}]}]
    assert site.without(nav, {"c.md"}) == [{"A": "a.md"}]


def test_what_a_page_would_fetch_is_found():
    fetched = tool("site").FETCHED
    assert fetched.search('<script src="https://example.org/a.js">')
    assert fetched.search('<link rel="stylesheet" href="//example.org/a.css">')
    assert not fetched.search('<a href="https://example.org">')
    assert not fetched.search('<img src="figures/plan.png">')


def test_what_a_page_would_fetch_is_a_warning_which_a_strict_build_refuses(caplog):
    html = '<p><img src="https://example.org/a.png"></p>'
    with caplog.at_level(logging.DEBUG):
        assert tool("site").on_post_page(html, page=page_of("local.md")) == html
        assert tool("site").on_post_page('<img src="figures/a.png">', page=page_of("card.md"))
    ((logger, level, message),) = caplog.record_tuples
    assert logger.startswith("mkdocs.")  # MkDocs counts the warnings of its own
    assert level == logging.WARNING
    assert message == 'local.md fetches from elsewhere: <img src="https://example.org/a.png'


def page_of(name: str) -> Any:
    """Return what hooks read of a page of MkDocs."""
    return SimpleNamespace(file=SimpleNamespace(src_uri=name))


def test_long_names_in_tables_break_between_their_parts():
    html = "<td><code>accounting.bounds.log_moments</code> <code>a.b_c</code></td><code>a.b</code>"
    assert tool("site").on_page_content(html) == (
        "<td><code>accounting.<wbr>bounds.<wbr>log_<wbr>moments</code> <code>a.b_c</code></td><code>a.b</code>"
    )
    assert tool("site").breakable("tests/test_of_what_it_is.py") == "tests/<wbr>test_of_what_it_is.py"


@pytest.mark.parametrize(
    "literal",
    [
        "`votes_i` and `e^{−x}`", "``a_b `c_d` ``", "```\nvotes_i `` e^{x}\n```", "## The σ_s of it",
        "[a page](docs/a_b.md)", "<!-- σ_s -->", "https://example.org/a_b^c",
    ],
)  # fmt: skip
def test_formulas_are_set_and_code_is_not(literal):
    formulas = tool("formulas")
    text = f"Noise σ_s\n{literal}\nand e^{{−x}}."
    assert formulas.on_page_markdown(text, page=page_of("local.md")) == (
        f"Noise σ<sub>s</sub>\n{literal}\nand e<sup>−x</sup>."
    )
    assert formulas.on_page_markdown(text, page=page_of("reference/votes.md")) == text


def test_what_follows_underscores_and_carets_is_set():
    typeset = tool("formulas").typeset
    assert typeset("e^{−x_{i}²} P_o(K), σ_s√k") == "e<sup>−x<sub>i</sub>²</sup> P<sub>o</sub>(K), σ<sub>s</sub>√k"
    assert typeset("o_{<t} v_iτ_i") == "o<sub>&lt;t</sub> v<sub>i</sub>τ<sub>i</sub>"
    assert typeset("_emphasis_ stays") == "_emphasis_ stays"
    with pytest.raises(ValueError, match="not closed"):
        typeset("e^{−x")


# Links between pages


def linked_from(page: Path) -> set[Path]:
    """Return the pages that a page links to, other than in a block of code."""
    targets = re.findall(r"\]\(([^)#:\s]+\.md)", BLOCK.sub("", page.read_text()))
    return {found for target in targets if (found := (page.parent / target).resolve()).is_file()}


def test_every_page_is_reached_from_the_readme():
    reached, frontier = set(), {REPOSITORY / "README.md"}
    while frontier:
        reached |= frontier
        frontier = set().union(*map(linked_from, frontier)) - reached
    docs = REPOSITORY / "docs"
    pages = {REPOSITORY / "SECURITY.md", REPOSITORY / "examples" / "README.md"}
    pages |= {page for folder in ("", "howto", "concepts", "proofs") for page in (docs / folder).glob("*.md")}
    assert len(pages) > 40
    assert {str(page.relative_to(REPOSITORY)) for page in pages - reached} == set()


# Links to elsewhere


def external_links() -> dict[str, set[str]]:
    """Every address that pages and docstrings name, and where."""
    found: dict[str, set[str]] = {}
    for path in [*PAGES, *(REPOSITORY / "src").rglob("*.py"), *(REPOSITORY / "reproductions").rglob("*.py")]:
        for address in re.findall(r"https?://[^\s<>\"'`\])]+(?:\([^\s)]*\))?", path.read_text()):
            found.setdefault(address.rstrip(".,;"), set()).add(str(path.relative_to(REPOSITORY)))
    return found


def test_links_to_elsewhere_are_secure_and_spelled_in_one_way():
    links = external_links()
    spellings: dict[str, set[str]] = {}
    for link in links:
        bare = re.sub(r"^https?://(www\.)?", "", link).rstrip("/").removesuffix(".pdf")
        bare = re.sub(r"^arxiv\.org/(?:abs|pdf)/([\d.]+)(?:v\d+)?$", r"arxiv.org/\1", bare)
        bare = re.sub(r"^dx\.doi\.org/", "doi.org/", bare)
        spellings.setdefault(bare.lower(), set()).add(link)
    assert len(links) > 4
    for written in spellings.values():
        assert len(written) == 1, written
    # The server of SVHN answers on http alone; what comes from it is known by its checksum.
    assert {link for link in links if not link.startswith("https://")} <= {"http://ufldl.stanford.edu/housenumbers"}
