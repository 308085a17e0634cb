"""``tutelage key``: keys to sign cards and heads of ledgers with."""

from pathlib import Path

from tutelage.cli.text import say


def key(name: str, *, folder: Path = Path()) -> None:
    """Make a key to sign cards with: NAME.private.json, for the signer alone, and NAME.public.json, for all others.

    Parameters
    ----------
    name
        Name of the signer, such as officer.
    folder
        Folder to write the two files to.
    """
    from tutelage.signing import SigningKey, VerifyKey

    private, public = SigningKey.generate(name).save(folder)
    say(f"{private}: keep it to yourself. Sign with it: tutelage card FOLDER --sign {private}")
    say(
        f"{public}: give it to those who check your signature, and tell them its fingerprint by another channel:"
    )
    say(VerifyKey.load(public).fingerprint)
