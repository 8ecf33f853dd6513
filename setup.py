"""Builds the modules in C where there is a compiler; without one the package is the same, and slower.

Everything else is said in pyproject.toml. ``Extension(optional=True)`` would do, but fails for editable installs: they
look for each file that was promised.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CompileError, LinkError

_FAILURES = (BaseError, CompileError, LinkError)


class BuildWhatCanBeBuilt(build_ext):
    """Leaves out what does not compile, and says so."""

    def run(self) -> None:
        try:
            super().run()
        except _FAILURES as error:
            self._leave_out(self.extensions, error)

    def build_extensions(self) -> None:
        built = []
        for extension in self.extensions:
            try:
                self.build_extension(extension)
                built.append(extension)
            except _FAILURES as error:
                self._leave_out([extension], error)
        self.extensions = built

    def _leave_out(self, extensions: list[Extension], error: Exception) -> None:
        for extension in extensions:
            self.warn(f"{extension.name} is not built, Python does its work: {error}")
        self.extensions = [each for each in self.extensions if each not in extensions]


def _hash(source: Path) -> str:
    """Returns the hash by which a module that is older than its source is noticed."""
    specification = spec_from_file_location("compiled", Path("cdc", "base", "compiled.py"))
    assert specification is not None
    assert specification.loader is not None
    compiled = module_from_spec(specification)
    specification.loader.exec_module(compiled)
    found: bytes = compiled.source_hash(source)
    return found.decode()


def twins() -> list[Extension]:
    """Every ``.pyx`` of the package, as C; none where there is no Cython."""
    sources = sorted(Path("cdc").glob("**/_*.pyx"))
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    declared = [str(each) for each in Path("cdc").glob("**/_*.pxd")]
    modules = [
        Extension(
            ".".join(each.with_suffix("").parts),
            [str(each)],
            depends=declared,
            define_macros=[("CDC_SOURCE", f'"{_hash(each)}"')],
        )
        for each in sources
    ]
    extensions: list[Extension] = cythonize(modules, build_dir="build", language_level=3)
    return extensions


setup(ext_modules=twins(), cmdclass={"build_ext": BuildWhatCanBeBuilt})
