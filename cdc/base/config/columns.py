"""The option ``source.columns``: which columns of a table do not leave, and which leave masked."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cdc.base.config import checks

_STRICT = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)


def _null(value: Any) -> Any:
    """YAML reads the word as no value."""
    return "null" if value is None else value


_ColumnName: TypeAlias = Annotated[str, AfterValidator(checks.identifier), AfterValidator(checks.present)]
_Names: TypeAlias = Annotated[tuple[_ColumnName, ...], BeforeValidator(checks.split_list)]
_Mask: TypeAlias = Annotated[Literal["null", "last4", "sha256", "sha256-joinable"], BeforeValidator(_null)]


class ColumnsConfig(BaseModel):
    """What of one table's rows may not leave."""

    model_config = _STRICT

    exclude: _Names = ()
    """Columns that are left out of topics and histories; none by default."""
    mask: dict[_ColumnName, _Mask] = Field(default_factory=dict)
    """Columns whose values leave masked: null, last4 (the last four characters), sha256 (a hash under the salt), or
    sha256-joinable (a hash that is the same in each column with this mask); none by default."""
    keep: _Names = ()
    """Columns that leave as they are; only policy: strict needs the list, so it is empty by default."""
    policy: Literal["open", "strict"] = "open"
    """What becomes of a column without a rule: open (default, because most columns are no secret) lets it leave; strict
    stops the table until a rule names the column, so that nothing new leaves unseen."""

    @model_validator(mode="after")
    def _check(self) -> ColumnsConfig:
        named = [*self.exclude, *self.mask, *self.keep]
        if twice := sorted({each for each in named if named.count(each) > 1}):
            raise ValueError(f"{twice[0]} is named more than once: a column has one rule")
        if self.keep and self.policy == "open":
            raise ValueError("keep says nothing without policy: strict, as every column without a rule leaves")
        if not named and self.policy == "open":
            raise ValueError("it names no column: add exclude or mask, or leave it out")
        return self

    @property
    def needs_salt(self) -> bool:
        """Whether a column leaves as a hash."""
        return any(each.startswith("sha256") for each in self.mask.values())
