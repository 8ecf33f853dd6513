"""Reads a section's password, and adds it to the connection string."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pydantic import SecretStr, ValidationInfo

from cdc.base.config import masking


class WithPassword(Protocol):
    """A section of the configuration that may have a password, or a file with it."""

    @property
    def password(self) -> SecretStr | None: ...
    @property
    def password_file(self) -> str | None: ...


def settle(section: WithPassword, info: ValidationInfo, dsn: str = "") -> None:
    """Read ``password_file`` into ``password``. A password may be given in one place only.

    A relative path starts at the validation context's ``directory``, which is that of the configuration file.
    """
    given = [name for name in ("password", "password_file") if getattr(section, name) is not None]
    given += ["dsn"] if masking.dsn_secrets(dsn) else []
    if len(given) > 1:
        raise ValueError(f"the password is given in {' and in '.join(given)}; keep one of them")
    if section.password_file is not None:
        path = Path((info.context or {}).get("directory", ""), section.password_file)
        object.__setattr__(section, "password", SecretStr(_first_line(path)))


def connection(dsn: SecretStr, password: SecretStr | None) -> dict[str, str]:
    """Returns ``conninfo`` and, if there is one, ``password``: in libpq, a keyword overrides the string."""
    arguments = {"conninfo": dsn.get_secret_value()}
    if password is not None:
        arguments["password"] = password.get_secret_value()
    return arguments


def _first_line(path: Path) -> str:
    try:
        line = path.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except OSError as error:
        raise ValueError(f"password_file: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        # "from None": the cause would contain the file's bytes.
        raise ValueError(f"password_file: {path} is not UTF-8 text") from None
    if not line:
        raise ValueError(f"password_file: the first line of {path} is empty")
    return line
