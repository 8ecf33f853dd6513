"""A demand stands until a backfill of it is on record, however many sessions fail before that."""

from __future__ import annotations

from cdc.bridge.order.demand import Demand, StandingDemands

ONE, OTHER = (Demand(f"public.{name}", True, "it was unlogged for a while") for name in ("one", "other"))


def test_a_session_that_fails_before_its_first_commit_leaves_its_demands_to_the_next() -> None:
    demands = StandingDemands()
    demands.add([ONE])
    assert demands.take({"public.one"}) == [ONE]
    assert demands.take({"public.one"}) == [ONE]
    demands.are_recorded()
    assert demands.take({"public.one"}) == []


def test_a_table_that_is_not_captured_yet_keeps_its_demand() -> None:
    demands = StandingDemands()
    demands.add([ONE, OTHER])
    assert demands.take({"public.other"}) == [OTHER]
    demands.are_recorded()
    assert demands.take({"public.one", "public.other"}) == [ONE]


def test_what_is_demanded_again_before_the_commit_stands_after_it() -> None:
    demands = StandingDemands()
    demands.add([ONE])
    demands.take({"public.one"})
    demands.add([ONE])
    demands.are_recorded()
    demands.are_recorded()  # every later commit says so, too
    assert demands.take({"public.one"}) == [ONE]
