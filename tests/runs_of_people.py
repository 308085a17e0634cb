"""Files and configurations of runs in which every person is a teacher, for tests of the command line."""

import re
from pathlib import Path

import test_cli

CONFIG = (
    test_cli.FILES
    + """
label = "ill"
evaluate_last = 60

[method]
name = "{name}"
{method}

[privacy]
delta = 1e-5
{privacy}

[output]
folder = "out"
{more}
"""
)
CAPPED = 'mechanism = {{ name = "capped", sigma = {}, cap = {} }}'
NEAREST = {"name": "capped-votes", "more": "votes = true"}
VECTORS = {"name": "noisy-moments", "more": ""}
ADDITIVE = {"name": "additive", "more": ""}
NUMBERS = {"name": "additive", "more": ""}
TARGET = 'column = "age"\nrange = [0, 100]\n'
SCHEMA = '[schema]\nage = [20, 89]\ndose = [0, 1]\nward = ["north", "east"]\n'
SCHEMA_OF_NUMBERS = SCHEMA.replace("age = [20, 89]", 'ill = ["no", "yes"]')


def configure_people(folder: Path, by: dict[str, str], **sections: str) -> None:
    parts = {
        "private": 'entity = "patient"',
        "public": "",
        "privacy": "epsilon = 2.0",
        "method": "",
        **by,
        **sections,
    }
    text = CONFIG.format(**parts)
    # A public schema, without the wards of some people, in place of public rows.
    if by in (ADDITIVE, NUMBERS):
        (folder / "schema.toml").write_text(SCHEMA if by is ADDITIVE else SCHEMA_OF_NUMBERS)
        text = re.sub(
            'file = "public.csv"\\s+label = .*\nevaluate_last = 60', 'schema = "schema.toml"', text
        )
    if by is NUMBERS:
        text = re.sub('column = "ill"\nclasses = .*\n', TARGET, text)
        text = re.sub("\\[method\\]\nname = .*\n", "", text)
    (folder / "config.toml").write_text(text)
