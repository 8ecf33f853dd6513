"""The wheel as it is installed: every command starts without an extra, and names the extra that it lacks."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.architecture.test_compose import let_through
from tests.install.environments import NO_COMPILER, Environment, build, copy_project

EVERY_HELP = """
import json, sys
from typer.testing import CliRunner
from cdc.cli.cli import app
from cdc.cli.commands import COMMANDS, load

def paths(command, path):
    children = getattr(command, "commands", {})
    return [each for name, child in children.items() for each in paths(child, [*path, name])] or [path]

shown = {}
for name in COMMANDS:
    for path in paths(load(name), [name]):
        result = CliRunner().invoke(app, [*path, "--help"])
        shown[" ".join(path)] = result.exit_code == 0 and "Example" in result.output or repr(result)
print(json.dumps({path: found for path, found in shown.items() if found is not True}), len(shown))
"""

NOBODY = """
name: shop
source:
  dsn: host=127.0.0.1 port=1 dbname=shop user=cdc
kafka:
  bootstrap: 127.0.0.1:1
sink:
  dsn: host=127.0.0.1 port=1 dbname=shop user=cdc
"""


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("bare"))
    environment.borrow()
    environment.pip_install("--no-deps", "--no-index", wheel)
    (environment.folder / "shop.yaml").write_text(NOBODY)
    return environment


def test_it_puts_nothing_but_cdc_among_everybodys_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"cdc", f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}
    for needed in (
        "cdc/lab/stack/kafka.lock",
        "cdc/spark/reconcile/main.py",
        "cdc/spark/report/schema.json",
        "cdc/sink/migrations/script.py.mako",
        "cdc/sink/migrations/versions/0001_sink_state.py",
    ):
        assert needed in names


HOT_PATH = ("python", "-c", "from cdc.base.compiled import language; print(language())")


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler here")
def test_with_a_compiler_the_hot_path_is_in_c(bare: Environment) -> None:
    assert bare.run(*HOT_PATH).stdout == "C\n"


def test_without_a_compiler_it_is_in_python(tmp_path: Path) -> None:
    wheel = build(copy_project(tmp_path / "project"), "wheel", tmp_path / "wheel", **NO_COMPILER)
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    environment = Environment(tmp_path / "environment")
    environment.borrow()
    environment.pip_install("--no-deps", "--no-index", wheel)
    assert environment.run(*HOT_PATH).stdout == "Python\n"


@pytest.mark.long
def test_a_checkout_is_installed_without_a_compiler(tmp_path: Path) -> None:
    checkout = copy_project(tmp_path / "checkout")
    environment = Environment(tmp_path / "environment")
    environment.borrow("dev")
    environment.pip_install("--no-deps", "--no-index", "--no-build-isolation", "-e", checkout, **NO_COMPILER)
    assert environment.run(*HOT_PATH).stdout == "Python\n"


def test_every_command_tells_of_itself_without_an_extra(bare: Environment) -> None:
    absent = bare.run("python", "-c", "import psutil, pyspark")
    assert "ModuleNotFoundError" in absent.stderr, "the environment is not bare"
    assert "Usage: cdc" in bare.run("cdc", "--help").stdout
    done = bare.run("python", "-c", EVERY_HELP)
    without_help, count = done.stdout.split(maxsplit=1)
    assert (without_help, int(count) > 30) == ("{}", True), done.stdout + done.stderr


def test_check_says_that_nobody_answers(bare: Environment) -> None:
    done = bare.run("cdc", "check", "-c", "shop.yaml")
    assert done.returncode == 3, done.stderr
    assert "FAIL  source" in done.stdout
    assert "FAIL  kafka" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


COMMANDS = {
    "spark": (
        ("reconcile",),
        ("health",),
        ("mirror", "--once", "--to", "delta:lake"),
        ("snapshot", "public.orders", "--to", "snapshots"),
        ("audit", "public.orders", "--to", "trail"),
    ),
    "embedded": (("stack", "status"), ("demo",)),
    "view": (("serve",),),
}


@pytest.mark.parametrize("extra", COMMANDS)
def test_a_command_without_its_extra_says_how_to_get_it(bare: Environment, wheel: Path, extra: str) -> None:
    for command in COMMANDS[extra]:
        done = bare.run("cdc", *command, CDC_CONFIG=str(bare.folder / "shop.yaml"))
        assert done.returncode == 2, done.stderr
        assert f"needs the extra {extra}; not installed: " in done.stderr
        assert f"pip install '.[{extra}]' in a checkout" in done.stderr
        assert f"pip install --find-links . 'cdc-bridge[{extra}]'" in done.stderr
    # What the remedy names, pip takes.
    found = ("--find-links", wheel.parent, f"cdc-bridge[{extra}]")
    bare.pip_install("--dry-run", "--no-deps", "--no-index", "--force-reinstall", *found)


FORMATS = ("avro", "protobuf", "json-schema")
NEEDED = "needs the extra registry; not installed: "


@pytest.fixture(scope="module")
def with_servers(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("embedded"))
    environment.borrow("embedded")
    environment.pip_install("--no-deps", "--no-index", wheel)
    return environment


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_whose_schemas_are_in_a_registry_names_the_extra(
    bare: Environment, with_servers: Environment, form: str
) -> None:
    config = bare.folder / f"{form}.yaml"
    config.write_text(f"{NOBODY}topics:\n  format: {form}\nregistry:\n  url: http://127.0.0.1:1\n")
    run = bare.run("cdc", "run", "-c", str(config))
    assert (run.returncode, f"the section registry of the configuration {NEEDED}" in run.stderr) == (2, True), (
        run.stderr
    )
    check = bare.run("cdc", "check", "-c", str(config))
    assert check.returncode == 3
    assert f"FAIL  registry  connection: the section registry of the configuration {NEEDED}" in check.stdout
    demo = with_servers.run("cdc", "demo", "--format", form)
    assert (demo.returncode, f"cdc demo --format {form} {NEEDED}" in demo.stderr) == (2, True), demo.stderr
    for done in (run, demo):
        assert "pip install '.[registry]' in a checkout" in done.stderr


READ_EACH = """
import cdc.cli.sink_command
from cdc.contract.formats.registered import registered
print([registered(name).reader.__name__ for name in ("avro", "protobuf", "json-schema")])
"""


def test_who_reads_a_format_needs_no_extra(bare: Environment) -> None:
    done = bare.run("python", "-c", READ_EACH)
    assert (done.returncode, done.stdout.count("Reader")) == (0, len(FORMATS)), done.stderr


def test_with_spark_alone_a_job_says_what_it_downloads(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "spark")
    environment.borrow("spark")
    environment.pip_install("--no-deps", "--no-index", wheel)
    (environment.folder / "shop.yaml").write_text(NOBODY)
    nowhere = "http://127.0.0.1:1"
    done = environment.run(
        "cdc",
        *("reconcile", "-c", "shop.yaml"),
        CDC_CACHE_DIR=str(tmp_path / "cache"),
        HOME=str(tmp_path),
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), nowhere),
    )
    assert done.stderr.startswith("Spark's connectors 4.2.0: downloading "), done.stderr
    # Whichever of them fails first: they are fetched side by side
    assert re.search(r"^error: cannot download (org|io)\.[\w.]+:", done.stderr, re.MULTILINE), done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2, "not verified, whatever the reason"


@pytest.mark.long
def test_the_image_is_whole(project: Path, tmp_path: Path) -> None:
    """As the Dockerfile builds it, without an engine: what it copies is installed, and its entry point starts."""
    context = tmp_path / "context"
    for name in let_through():
        place = context / Path(name).name
        place.parent.mkdir(exist_ok=True)
        if (project / name).is_dir():
            shutil.copytree(project / name, place, symlinks=True)
        else:
            shutil.copyfile(project / name, place)
    environment = Environment(tmp_path / "image")
    environment.borrow()
    environment.pip_install("--no-deps", "--no-index", build(context, "wheel", tmp_path / "built"))
    assert "Usage: cdc" in environment.run("cdc", "--help").stdout
    has_compiler = any(map(shutil.which, ("cc", "gcc", "clang")))
    assert environment.run(*HOT_PATH).stdout == ("C\n" if has_compiler else "Python\n")
    imported = "import cdc.cli.run_command, cdc.cli.sink_command, cdc.cli.status_command, cdc.sink.migrations"
    assert environment.run("python", "-c", imported).returncode == 0
