"""The section ``view``: topics to keep as tables for queries, and where to keep them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo
from pydantic import model_validator as _model_validator

from cdc.base.config import checks, masking, password_file

_STRICT = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

_Identifier: TypeAlias = Annotated[str, AfterValidator(checks.identifier), AfterValidator(checks.present)]
_TableName: TypeAlias = Annotated[str, AfterValidator(checks.table_name)]
_TopicName: TypeAlias = Annotated[str, AfterValidator(checks.topic_name)]
_Patterns: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(checks.table_pattern)], ...], BeforeValidator(checks.split_list)
]
_Indexes: TypeAlias = Annotated[
    tuple[Annotated[tuple[_Identifier, ...], BeforeValidator(checks.one_or_more)], ...],
    BeforeValidator(checks.split_list),
    AfterValidator(checks.indexes),
]

REDIS_SCHEMES = ("redis", "rediss")
MEMORY = "memory"


class OtherTopic(BaseModel):
    """A topic that another program writes, and the form of its keys and values."""

    model_config = _STRICT

    key: Literal["string", "json", "bytes"] = "string"
    """string (default, because most programs use plain identifiers) is UTF-8 text; json is any JSON value; bytes are
    arbitrary, and are shown in base64."""
    value: Literal["json", "string", "bytes"] = "json"
    """json (default, because most programs write it) is any JSON value; string and bytes as for keys."""


class ViewConfig(BaseModel):
    """Topics to keep as tables for queries."""

    model_config = _STRICT

    store: Annotated[str, AfterValidator(checks.present)]
    """The place of the tables: a folder (a relative path starts at the configuration file), redis://host:port/db, or
    memory, which is lost when the process ends."""
    password: SecretStr | None = None
    """Password of Redis, kept out of store so that it is never printed."""
    password_file: str | None = None
    """File whose first line is that password; a relative path starts at the configuration file."""
    tables: _Patterns = ("*.*",)
    """Captured tables to keep, as schema.table with * for any characters; all of them by default, because most people
    want that. An empty list keeps only the topics below."""
    exclude: _Patterns = ()
    """Patterns for tables to leave out."""
    index: dict[_TableName, _Indexes] = Field(default_factory=dict)
    """Indexes by schema.table: each is a column, or a list of up to eight. None by default, because each index costs a
    write per row."""
    topics: dict[_TopicName, OtherTopic] = Field(default_factory=dict)
    """Compacted topics of other programs to keep, by name, with the form of their keys and values."""

    @_model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> ViewConfig:
        password_file.settle(self, info, self.store if self.is_redis else "")
        if masking.dsn_secrets(self.store):
            raise ValueError("store must not contain the password; give it as password or password_file")
        if self.password is not None and not self.is_redis:
            raise ValueError("a password is given, but only Redis needs one")
        if not self.is_redis and self.store != MEMORY:
            if "://" in self.store:
                raise ValueError("store: write a folder, redis://host:port/db, or memory")
            folder = Path((info.context or {}).get("directory", ""), self.store)
            object.__setattr__(self, "store", str(folder))
        return self

    @property
    def is_redis(self) -> bool:
        """Whether the store is a Redis server."""
        return urlsplit(self.store).scheme in REDIS_SCHEMES
