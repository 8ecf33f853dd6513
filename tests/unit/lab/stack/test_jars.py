"""The lock: what it holds, and that nothing but the locked bytes gets in."""

from __future__ import annotations

import hashlib

import pytest

from cdc.base.errors import StackError
from cdc.lab.stack.artefacts import read_lock
from cdc.lab.stack.jars import KAFKA_LOCK, SPARK_LOCK, fetch_jars, kafka_version
from cdc.lab.stack.registry import REGISTRY_LOCK
from cdc.spark.session import CONNECTOR_VERSION

CONTENT = b"these are the right bytes"


@pytest.fixture
def lock(monkeypatch, tmp_path):
    monkeypatch.setenv("CDC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kafka.lock"
    digest = hashlib.sha256(CONTENT).hexdigest()
    path.write_text(f"# comment\norg.example:kafka_2.13:1.0 {digest} {len(CONTENT)}\n")
    return path


def downloading(content: bytes):
    def download(artefact, directory):
        file = directory / f"{artefact.name}.part"
        file.write_bytes(content)
        return file

    return download


def test_the_committed_lock_names_a_whole_broker():
    artefacts = read_lock(KAFKA_LOCK)
    assert kafka_version() == "4.2.2"
    assert len(artefacts) == 46
    assert all(len(artefact.sha256) == 64 for artefact in artefacts)
    # Without a logging binding the broker would say nothing, not even why it did not start.
    assert "log4j-slf4j-impl" in {artefact.name for artefact in artefacts}


def test_the_jars_of_spark_are_of_one_release():
    """The connector of one release beside the token provider of another: it calls that one's internals."""
    of_spark = {artefact.version for artefact in read_lock(SPARK_LOCK) if artefact.name.startswith("spark-")}
    assert of_spark == {CONNECTOR_VERSION}


def test_the_right_bytes_are_kept_and_not_fetched_again(lock):
    lines: list[str] = []
    libs = fetch_jars(lock, download=downloading(CONTENT), say=lines.append)
    assert (libs / "kafka_2.13-1.0.jar").read_bytes() == CONTENT
    assert lines[-1] == "Kafka 1.0: 1 of 1 jars, 0 of 0 MB"

    def unwanted(artefact, directory):
        raise AssertionError(f"{artefact.name} was fetched again")

    assert fetch_jars(lock, download=unwanted) == libs


def test_other_bytes_are_refused_and_nothing_is_kept(lock):
    with pytest.raises(StackError, match=r"org\.example:kafka_2\.13:1\.0 is not the file in the lock: sha256"):
        fetch_jars(lock, download=downloading(b"these are the WRONG bytes"))
    assert fetch_jars(lock, download=downloading(CONTENT)).is_dir()


def test_a_failed_download_names_the_artefact_and_what_to_check(lock):
    def offline(artefact, directory):
        raise OSError("network is unreachable")

    with pytest.raises(StackError, match=r"cannot download org\.example:kafka_2\.13:1\.0") as refused:
        fetch_jars(lock, download=offline)
    assert "HTTPS_PROXY" in refused.value.remedy


def test_a_cache_that_cannot_be_made_is_a_clear_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CDC_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(StackError, match="cannot be written"):
        fetch_jars()


def test_an_artefact_may_be_another_file_than_the_jar_of_its_name(lock):
    [plain] = read_lock(lock)
    assert plain.file_name == "kafka_2.13-1.0.jar"
    [registry] = read_lock(REGISTRY_LOCK)
    assert (registry.classifier, registry.packaging) == ("all", "tar.gz")
    assert registry.file_name == f"apicurio-registry-app-{registry.version}-all.tar.gz"
