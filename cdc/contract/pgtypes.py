"""PostgreSQL's types: the built-in ones by oid, and any column's type as SQL text.

The stream does not announce built-in types: ``pgoutput`` sends Type messages only from oid 10000 on. So their oids,
fixed for ever in ``pg_type.dat``, are part of the protocol.
"""

from __future__ import annotations

import re
from typing import Final

from cdc.contract.change import Column

# name, oid, oid of its array type (0: none). Every non-pseudo type of PostgreSQL 18; 16 has the same ones.
_BUILTIN: Final = """
    bool 16 1000, bytea 17 1001, char 18 1002, name 19 1003, int8 20 1016, int2 21 1005, int2vector 22 1006,
    int4 23 1007, regproc 24 1008, text 25 1009, oid 26 1028, tid 27 1010, xid 28 1011, cid 29 1012,
    oidvector 30 1013, pg_type 71 210, pg_attribute 75 270, pg_proc 81 272, pg_class 83 273, json 114 199,
    xml 142 143, pg_node_tree 194 0, point 600 1017, lseg 601 1018, path 602 1019, box 603 1020,
    polygon 604 1027, line 628 629, cidr 650 651, float4 700 1021, float8 701 1022, circle 718 719,
    macaddr8 774 775, money 790 791, macaddr 829 1040, inet 869 1041, aclitem 1033 1034, bpchar 1042 1014,
    varchar 1043 1015, date 1082 1182, time 1083 1183, timestamp 1114 1115, timestamptz 1184 1185,
    interval 1186 1187, pg_database 1248 0, timetz 1266 1270, bit 1560 1561, varbit 1562 1563, numeric 1700 1231,
    refcursor 1790 2201, regprocedure 2202 2207, regoper 2203 2208, regoperator 2204 2209, regclass 2205 2210,
    regtype 2206 2211, pg_authid 2842 0, pg_auth_members 2843 0, uuid 2950 2951, txid_snapshot 2970 2949,
    pg_lsn 3220 3221, pg_ndistinct 3361 0, pg_dependencies 3402 0, tsvector 3614 3643, tsquery 3615 3645,
    gtsvector 3642 3644, regconfig 3734 3735, regdictionary 3769 3770, jsonb 3802 3807, int4range 3904 3905,
    numrange 3906 3907, tsrange 3908 3909, tstzrange 3910 3911, daterange 3912 3913, int8range 3926 3927,
    pg_shseclabel 4066 0, jsonpath 4072 4073, regnamespace 4089 4090, regrole 4096 4097, regcollation 4191 4192,
    int4multirange 4451 6150, nummultirange 4532 6151, tsmultirange 4533 6152, tstzmultirange 4534 6153,
    datemultirange 4535 6155, int8multirange 4536 6157, pg_brin_bloom_summary 4600 0,
    pg_brin_minmax_multi_summary 4601 0, pg_mcv_list 5017 0, pg_snapshot 5038 5039, xid8 5069 271,
    pg_subscription 6101 0
"""

CATALOG: Final = "pg_catalog"
_QUALIFIED: Final = re.compile(r"""("(?:[^"]|"")*"|[^".]*)[.]("(?:[^"]|"")*"|[^".]*)""")


def _read_table() -> tuple[dict[int, str], frozenset[str]]:
    names: dict[int, str] = {}
    arrays: set[str] = set()
    for entry in _BUILTIN.replace("\n", " ").split(","):
        name, oid, array_oid = entry.split()
        names[int(oid)] = f"{CATALOG}.{name}"
        if int(array_oid):
            names[int(array_oid)] = array = f"{CATALOG}._{name}"
            arrays.add(array)
    return names, frozenset(arrays)


BUILTIN_NAMES, _BUILTIN_ARRAYS = _read_table()
"""``pg_catalog.<name>`` by type oid; and those of these names that are arrays."""


def type_name(namespace: str, name: str) -> str:
    """Returns ``namespace.name`` as ``Column.type_name`` holds it; a part with a dot or a quote in it is quoted."""
    return ".".join(quote_identifier(part) if "." in part or '"' in part else part for part in (namespace, name))


def split_type_name(qualified: str) -> tuple[str, str]:
    """Returns the (namespace, name) that ``type_name`` joined."""
    match = _QUALIFIED.fullmatch(qualified)
    if match is None:
        raise ValueError(f"not a qualified type name: {qualified!r}")
    namespace, name = (part[1:-1].replace('""', '"') if part[:1] == '"' else part for part in match.groups())
    return namespace, name


def element_name(qualified: str) -> str | None:
    """Returns the element type of an array type, or None if ``qualified`` is not known to be an array.

    The table lists built-in arrays. For others, the stream sends only the type's name. PostgreSQL calls the array of
    ``mood`` ``_mood``, so a leading underscore is a strong hint, but not a proof: an enum may be called ``_mood``, too.
    """
    namespace, name = split_type_name(qualified)
    if qualified in _BUILTIN_ARRAYS or (name.startswith("_") and len(name) > 1 and namespace != CATALOG):
        return type_name(namespace, name[1:])
    return None


def sql_type(column: Column) -> str:
    """Returns a column's complete SQL type: ``numeric(12,2)``, ``text[]``, ``"public"."Mood"``.

    A domain becomes its base type without the domain's own modifier, because the stream tells no more. Modifiers of
    extension types are left out, because only the extension can interpret them.
    """
    element = element_name(column.type_name)
    if element is not None:
        return _spell(element, column.type_modifier) + "[]"
    return _spell(column.type_name, column.type_modifier)


def quote_identifier(name: str) -> str:
    """Returns a name in double quotes, so that SQL takes it literally."""
    return '"' + name.replace('"', '""') + '"'


_INTERVAL_FIELDS: Final = {
    # INTERVAL_MASK bits: month 1, year 2, day 3, hour 10, minute 11, second 12 (utils/timestamp.h, utils/datetime.h).
    1 << 2: "year",
    1 << 1: "month",
    1 << 3: "day",
    1 << 10: "hour",
    1 << 11: "minute",
    1 << 12: "second",
    1 << 2 | 1 << 1: "year to month",
    1 << 3 | 1 << 10: "day to hour",
    1 << 3 | 1 << 10 | 1 << 11: "day to minute",
    1 << 3 | 1 << 10 | 1 << 11 | 1 << 12: "day to second",
    1 << 10 | 1 << 11: "hour to minute",
    1 << 10 | 1 << 11 | 1 << 12: "hour to second",
    1 << 11 | 1 << 12: "minute to second",
}
_NO_PRECISION: Final = 0xFFFF


def _spell(qualified: str, modifier: int) -> str:
    namespace, name = split_type_name(qualified)
    if namespace != CATALOG:
        return f"{quote_identifier(namespace)}.{quote_identifier(name)}"
    if modifier < 0:
        # To the parser, bare char and bit mean char(1) and bit(1); in quotes, they are the types without a length.
        return f'"{name}"' if name in ("char", "bit") else name
    if name == "numeric":
        # numeric.c: precision above 16 bits, scale in 11 bits with sign (negative from PostgreSQL 15 on).
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        return f"numeric({precision},{(scale ^ 1024) - 1024})"
    if name in ("varchar", "bpchar"):
        return f"{'varchar' if name == 'varchar' else 'char'}({modifier - 4})"
    if name in ("bit", "varbit", "time", "timetz", "timestamp", "timestamptz"):
        return f"{name}({modifier})"
    if name == "interval":
        fields, precision = _INTERVAL_FIELDS.get(modifier >> 16 & 0x7FFF, ""), modifier & 0xFFFF
        suffix = "" if precision == _NO_PRECISION else f"({precision})"
        return f"interval {fields}{suffix}" if fields else f"interval{suffix}"
    return name
