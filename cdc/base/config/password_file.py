"""Reads a section's password, token or salt, and adds a password to the connection string."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, SecretStr, ValidationInfo

from cdc.base.config import masking


def settle(
    section: BaseModel, info: ValidationInfo, dsn: str = "", *, what: Literal["password", "token", "salt"] = "password"
) -> None:
    """Read ``password_file`` into ``password``; so with a token and a salt. Each may be given in one place only.

    A relative path starts at the validation context's ``directory``, which is that of the configuration file.
    """
    key = f"{what}_file"
    given = [name for name in (what, key) if getattr(section, name) is not None]
    given += ["dsn"] if masking.dsn_secrets(dsn) else []
    if len(given) > 1:
        raise ValueError(f"the {what} is given in {' and in '.join(given)}; keep one of them")
    if (named := getattr(section, key)) is not None:
        path = Path((info.context or {}).get("directory", ""), named)
        object.__setattr__(section, what, SecretStr(_first_line(path, key)))


def connection(dsn: SecretStr, password: SecretStr | None) -> dict[str, str]:
    """Returns ``conninfo`` and, if there is one, ``password``: in libpq, a keyword overrides the string."""
    arguments = {"conninfo": dsn.get_secret_value()}
    if password is not None:
        arguments["password"] = password.get_secret_value()
    return arguments


def _first_line(path: Path, key: str) -> str:
    try:
        line = path.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except OSError as error:
        raise ValueError(f"{key}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        # "from None": the cause would contain the file's bytes.
        raise ValueError(f"{key}: {path} is not UTF-8 text") from None
    if not line:
        raise ValueError(f"{key}: the first line of {path} is empty")
    return line
