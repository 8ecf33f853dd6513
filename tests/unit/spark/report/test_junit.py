"""What a build server reads."""

from __future__ import annotations

from xml.etree import ElementTree

from cdc.spark.report.junit import as_junit
from tests.support import reports


def cases(text: str) -> dict[str, ElementTree.Element]:
    found = ElementTree.fromstring(text).findall("./testsuite/testcase")
    return {f"{case.get('classname')} {(case.get('name') or '').split()[2]}": case for case in found}


def test_a_case_for_each_table_and_side() -> None:
    text = as_junit(reports.mixed())
    found = cases(text)
    assert list(found) == [
        "public.orders topic",
        "public.orders replica",
        "public.events topic",
        "public.customers topic",
        "public.customers replica",
        "sales.invoice_lines topic",
        "sales.empty topic",
    ]
    suite = ElementTree.fromstring(text)[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "7",
        "failures": "2",
        "errors": "1",
    }


def test_different_fails_and_not_verified_is_an_error() -> None:
    found = cases(as_junit(reports.mixed()))
    failure = found["public.orders topic"].find("failure")
    assert failure is not None
    assert "1,310 of 1,000,002 keys differ" in str(failure.get("message"))
    assert 'key {"id":42}' in str(failure.text)
    error = found["public.events topic"].find("error")
    assert error is not None
    assert str(error.get("message")).startswith("the bridge did not reach LSN")
    assert "what to do: start the bridge" in str(error.text)
    assert found["sales.empty topic"].find("failure") is None


def test_only_the_side_that_differs_fails() -> None:
    replica = reports.replica_of().model_copy(update={"extra_in_replica": 2})
    table = reports.identical_table(verdict="different", replica=replica)
    found = cases(as_junit(reports.report(table)))
    assert found["public.orders topic"].find("failure") is None
    assert found["public.orders replica"].find("failure") is not None


def test_any_value_leaves_it_well_formed() -> None:
    ElementTree.fromstring(as_junit(reports.hostile()).encode())
