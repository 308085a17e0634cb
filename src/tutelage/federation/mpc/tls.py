"""Mutual TLS 1.3 between computing parties whose certificates are known beforehand, byte for byte."""

import secrets
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tutelage.exceptions import InvalidParameterError


def certificate_bytes(pem: str) -> bytes:
    """Return the certificate in DER."""
    try:
        return ssl.PEM_cert_to_DER_cert(pem.strip())
    except ValueError:
        raise InvalidParameterError("`certificate_pem` of an endpoint must be one certificate in PEM.") from None


def context_for(mine: str, key_pem: bytes, all_of_them: Sequence[str], *, server: bool) -> ssl.SSLContext:
    """Return the settings of one end of a connection: TLS 1.3 alone, both ends show one of the certificates.

    Who shows which is not settled here: compare `certificate_of` with the certificate of the party that it must be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata="\n".join(all_of_them))
    if server:
        context.num_tickets = 0  # a session is never resumed
    _load_key(context, mine, key_pem)
    return context


def certificate_of(connection: ssl.SSLObject | ssl.SSLSocket) -> bytes | None:
    """Return the certificate that the other end proved to be its own, in DER."""
    return connection.getpeercert(binary_form=True)


def _load_key(context: ssl.SSLContext, certificate: str, key_pem: bytes) -> None:
    from cryptography.hazmat.primitives import serialization

    password = secrets.token_hex(32).encode()
    try:
        key = serialization.load_pem_private_key(key_pem, None)
        encrypted = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password),
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "key.pem"
            path.write_bytes(certificate.encode("ascii") + b"\n" + encrypted)
            context.load_cert_chain(path, password=password)
    except (ValueError, TypeError, ssl.SSLError):
        raise InvalidParameterError("`tls_key_pem` must be the private key of this party's certificate.") from None
