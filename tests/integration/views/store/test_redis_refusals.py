"""When Redis is of no use to a store: what is wrong, and what to do about it; and who is let in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import redis as client
from redis.exceptions import RedisError
from structlog.testing import capture_logs

from cdc.base.errors import ConfigError, StoreFull, StoreRefused, StoreUnavailable
from cdc.lab.stack import Redis
from cdc.lab.stack.embedded import free_port
from cdc.views.store import redis_lock
from cdc.views.store.open import open_store
from cdc.views.store.redis_link import parse, translated
from tests.integration.views.store.contract import commit, numbers, writing
from tests.integration.views.store.elsewhere import item, look
from tests.integration.views.store.redis_place import Prefix
from tests.support.certificates import Authority
from tests.support.remedies import is_remedy
from tests.support.servers import OwnStack
from tests.support.waiting import eventually


@pytest.fixture
def place(redis: Redis) -> Prefix:
    return Prefix(redis.url)


def test_a_server_that_throws_rows_away(own_stack: OwnStack) -> None:
    server = own_stack.redis({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    with pytest.raises(StoreRefused, match="maxmemory-policy allkeys-lru") as told:
        open_store(server.url)
    assert "CONFIG SET maxmemory-policy noeviction" in told.value.remedy
    with closing(client.Redis.from_url(server.url)) as raw:
        raw.config_set("maxmemory-policy", "volatile-lru")
    open_store(server.url).close()


def test_a_policy_that_is_changed_later_is_told(own_stack: OwnStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_lock, "LOOKS", 1)
    server = own_stack.redis()
    with (
        closing(client.Redis.from_url(server.url)) as raw,
        capture_logs() as logs,
        writing(Prefix(server.url)) as store,
    ):
        version = commit(store, "left", item(0))
        raw.config_set("maxmemory-policy", "allkeys-lru")
        eventually(lambda: [each for each in logs if "maxmemory-policy allkeys-lru" in each["event"]], 20)
        assert "CONFIG SET maxmemory-policy noeviction" in next(each for each in logs if "remedy" in each)["remedy"]
        assert commit(store, "left", item(1)) == version + 1


@pytest.mark.parametrize("gone", ["left", "left:order", ".spaces"])
def test_what_redis_threw_away_is_not_taken_for_absent(redis: Redis, gone: str) -> None:
    """It throws whole keys away: all rows of a table are one of them."""
    place = Prefix(redis.url)
    with closing(place.raw()) as raw:
        with writing(place) as store, closing(place.open(read_only=True)) as reader:
            commit(store, "left", item(0), item(1))
            commit(store, "right", item(0))
            raw.delete(f"{place.prefix}:{gone}")
            for query in (
                lambda s: s.get("left", [item(0).key]),
                lambda s: s.scan("left"),
                lambda s: s.count("left"),
            ):
                with pytest.raises(StoreRefused, match="has lost keys of this store") as told:
                    reader.read(query)
                assert "noeviction" in told.value.remedy
            with pytest.raises(StoreRefused, match="has lost keys of this store"):
                commit(store, "left", item(7))
        with closing(place.open()) as store, pytest.raises(StoreRefused, match="has lost keys of this store"):
            store.lock()


@pytest.mark.parametrize("more", [[], [".spaces"]])
def test_everything_of_a_table_at_once_is_missed_too(redis: Redis, more: list[str]) -> None:
    place = Prefix(redis.url)
    with closing(place.raw()) as raw, writing(place) as store:
        commit(store, "left", item(0))
        raw.delete(*(f"{place.prefix}:{each}" for each in ("left", "left:order", *more)))
        with pytest.raises(StoreRefused, match="has lost keys of this store"):
            store.read(lambda s: s.count("left"))


def test_a_space_may_be_emptied_and_filled_again(redis: Redis) -> None:
    place = Prefix(redis.url)
    with writing(place) as store:
        commit(store, "left", item(0), item(1))
        for _ in range(2):
            transaction = store.begin()
            transaction.delete("left", [item(0).key, item(1).key])
            transaction.commit()
            assert store.read(lambda s: (s.count("left"), s.scan("left"))) == (0, [])
            commit(store, "left", item(0), item(1))
        transaction = store.begin()
        transaction.drop("left")
        transaction.commit()
        assert store.read(lambda s: s.count("left")) == 0
    with writing(place) as store:
        assert store.read(lambda s: s.count("left")) == 0


def test_a_store_of_before_may_list_spaces_that_were_emptied(redis: Redis) -> None:
    place = Prefix(redis.url)
    with writing(place) as store:
        commit(store, "left", item(0))
    with closing(place.raw()) as raw:
        raw.hdel(f"{place.prefix}:.store", "lists")
        raw.sadd(f"{place.prefix}:.spaces", "right")
    with writing(place) as store:
        assert store.read(lambda s: (s.count("left"), s.count("right"))) == (1, 0)


def test_rows_that_were_thrown_away_are_refused_when_redis_is_full(own_stack: OwnStack) -> None:
    server = own_stack.redis({"maxmemory": "12mb"})
    place = Prefix(server.url)
    with writing(place) as store, closing(place.raw()) as raw:
        commit(store, "left", item(0, b"x" * 1_000_000))
        assert store.read(lambda s: s.count("left")) == 1  # who knows a version misses it, if all was thrown away
        raw.config_set("maxmemory-policy", "allkeys-random")
        for number in range(1000):  # another program
            raw.set(f"other:{number}", b"x" * 1_000_000)
            if not raw.exists(f"{place.prefix}:left"):
                break
        assert not raw.exists(f"{place.prefix}:left"), "it was thrown away"
        with pytest.raises((StoreRefused, StoreUnavailable)):
            store.read(lambda s: s.get("left", [item(0).key]))


def test_a_server_that_is_full(own_stack: OwnStack) -> None:
    server = own_stack.redis({"maxmemory": "8mb"})
    place = Prefix(server.url)
    with writing(place) as store, closing(place.raw()) as raw:
        versions = []

        def fill() -> None:
            for number in range(100):
                versions.append(commit(store, "left", *(item(number, b"x" * 1_000_000) for _ in range(2))))

        with pytest.raises(StoreFull, match="is full") as told:
            fill()
        assert "maxmemory" in told.value.remedy
        version = store.version()
        assert version == versions[-1]
        assert store.read(lambda s: s.count("left")) == len(versions)
        raw.config_set("maxmemory", "0")
        assert commit(store, "right", item(1)) == version + 1


@pytest.mark.parametrize("said", ["NOREPLICAS Not enough", "LOADING Redis", "BUSY script", "MASTERDOWN Link", "WHAT"])
def test_what_few_servers_say_has_a_remedy_too(place: Prefix, said: str) -> None:
    assert is_remedy(translated(RedisError(said), parse(place.name)).remedy)


def test_a_cluster(own_stack: OwnStack) -> None:
    server = own_stack.redis({"cluster-enabled": "yes"})
    with pytest.raises(StoreRefused, match="is a cluster"):
        open_store(server.url)


def test_keys_of_another_program(place: Prefix) -> None:
    with writing(place) as store, closing(place.raw()) as raw:
        version = commit(store, "left", item(0))
        raw.set(f"{place.prefix}:right", "theirs")
        transaction = store.begin()
        transaction.put("left", [item(1)])
        transaction.put("right", [item(1)])
        with pytest.raises(StoreRefused, match="keys of another program"):
            transaction.commit()
        assert store.read(lambda s: (s.version, numbers(s.scan("left")))) == (version, [0])


def test_a_store_of_another_format(place: Prefix) -> None:
    with writing(place) as store:
        commit(store, "left", item(0))
    with closing(place.raw()) as raw:
        raw.hset(f"{place.prefix}:.store", "format", "3")
    with (
        closing(place.open()) as store,
        pytest.raises(StoreRefused, match="has format 3, but this program reads format 2"),
    ):
        store.lock()


def test_for_reading_only(place: Prefix) -> None:
    with closing(place.open(read_only=True)) as store, pytest.raises(StoreRefused, match="for reading only"):
        store.lock()


def test_a_user_with_the_rights_that_are_told_is_enough(own_stack: OwnStack) -> None:
    server = own_stack.redis()
    place = Prefix(server.url.replace("redis://", "redis://cdc:secret@"))
    with closing(client.Redis.from_url(server.url)) as admin:
        acl: Callable[..., object] = partial(admin.execute_command, "ACL", "SETUSER", "cdc")
        acl("on", ">other", f"~{place.prefix}:*")
        with pytest.raises(StoreRefused, match="refuses access") as wrong:
            place.open()
        acl(">secret")
        with pytest.raises(StoreRefused, match="refuses access") as forbidden:
            place.open()
        rights = forbidden.value.remedy.rsplit(": ", 1)[1].split()
        acl(*rights)
        with writing(place) as store:
            version = commit(store, "left", item(0))
            assert store.read(look)["version"] == version
            assert store.size().memory_bytes > 0
        open_store(place.name.replace("cdc:secret@", "cdc@"), password="secret").close()
        admin.set("elsewhere:x", "1")
        with closing(place.raw()) as raw, pytest.raises(RedisError, match="permission"):
            raw.get("elsewhere:x")
    for told in (wrong, forbidden):
        assert "secret" not in str(told.value)


def test_an_encrypted_connection(own_stack: OwnStack, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, port = authority.sign("redis"), free_port()
    own_stack.redis(
        {
            "tls-port": str(port),
            "tls-cert-file": str(mine.certificate),
            "tls-key-file": str(mine.key),
            "tls-ca-cert-file": str(authority.root),
            "tls-auth-clients": "no",
        }
    )
    place = Prefix(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.root}")
    with writing(place) as store:
        assert commit(store, "left", item(0)) == store.version()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        open_store(f"rediss://127.0.0.1:{port}/0")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("redis://", "a scheme, a host and a prefix"),
        ("redis://host:many/0", "Port could not be cast"),
        ("redis://127.0.0.1:1/0?colour=red", "colour"),
    ],
)
def test_an_address_that_is_none(address: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_store(address)


def test_an_address_is_told_without_its_secrets() -> None:
    place = parse("rediss://me:secret@redis.example:7000/3?prefix=shop&ssl_password=hidden")
    assert place.name == "rediss://redis.example:7000/3 (prefix shop)"
    assert place.prefix == "shop"
    assert place.url == "rediss://me:secret@redis.example:7000/3?ssl_password=hidden"
